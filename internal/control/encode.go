package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// types are the message types by kind.
var types = func() map[Kind]reflect.Type {
	out := make(map[Kind]reflect.Type)
	for _, m := range kinds {
		out[m.Kind()] = reflect.TypeOf(m).Elem()
	}
	return out
}()

// envelope is a message as JSON.
type envelope struct {
	Kind Kind            `json:"kind"`
	Body json.RawMessage `json:"body,omitempty"`
}

func encode(m Message) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{m.Kind(), body})
}

// decode returns the message that encode made text of. Every error wraps
// ErrMalformed.
func decode(text []byte) (Message, error) {
	var e envelope
	err := json.Unmarshal(text, &e)
	if err == nil {
		var m Message
		if m, err = e.open(); err == nil {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
}

func (e *envelope) open() (Message, error) {
	if e.Kind == "" {
		return nil, errors.New("it has no kind")
	}
	t := types[e.Kind]
	if t == nil {
		return nil, fmt.Errorf("unknown kind %.40q", e.Kind)
	}
	v := reflect.New(t).Interface()
	if len(e.Body) > 0 {
		if err := json.Unmarshal(e.Body, v); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Kind, err)
		}
	}
	if c, ok := v.(interface{ check() error }); ok {
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Kind, err)
		}
	}
	return v.(Message), nil
}

// Carried is a message within a FromRank or a ToRank.
type Carried struct{ Message }

// MarshalJSON encodes the message with its kind.
func (c Carried) MarshalJSON() ([]byte, error) { return encode(c.Message) }

// UnmarshalJSON refuses a message that carries another one.
func (c *Carried) UnmarshalJSON(text []byte) error {
	var e envelope
	err := json.Unmarshal(text, &e)
	switch e.Kind {
	case (*FromRank)(nil).Kind(), (*ToRank)(nil).Kind():
		return fmt.Errorf("a %s in another message", e.Kind)
	}
	if err == nil {
		c.Message, err = e.open()
	}
	return err
}

func (m *FromRank) check() error { return m.Carried.check() }
func (m *ToRank) check() error   { return m.Carried.check() }

func (c Carried) check() error {
	if c.Message == nil {
		return errors.New("it carries no message")
	}
	return nil
}
