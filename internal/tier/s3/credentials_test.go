package s3

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/s3/s3test"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

const sessionToken = "FwoGZXIvYXdzEXAMPLETOKEN"

// hasSecret reports whether a text has any of the credentials.
func hasSecret(text string) bool {
	for _, secret := range []string{s3test.SecretKey, s3test.AccessKey, sessionToken} {
		if strings.Contains(text, secret) {
			return true
		}
	}
	return false
}

// TestCredentials_Secret shows that no error, warning or object has the
// credentials, even if the store repeats the request.
func TestCredentials_Secret(t *testing.T) {
	s := server(t)
	t.Setenv("AWS_SESSION_TOKEN", sessionToken)
	o := options(s)
	var texts []string
	m := open(t, o)
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 1)
	p.Publish(m, p.Save())
	for _, key := range s.Keys() {
		if text := s.Content(key); hasSecret(string(text)) || hasSecret(key) {
			t.Errorf("object %s has credentials", key)
		}
	}
	ctx := t.Context()
	echoed := false
	for _, fault := range []s3test.Fault{s3test.Deny, s3test.Error500, s3test.Reset} {
		s.Fault = func(op, key string) s3test.Fault { return fault }
		errs := []error{
			m.Put(ctx, "a", tier.BytesSource([]byte("x"))), m.Put(ctx, "b", tier.BytesSource(make([]byte, 3*testPart))), m.Create(ctx, "c", []byte("x")),
			m.Remove(ctx, "a"), m.Sweep(ctx, "", time.Now()),
		}
		_, err := m.Get(ctx, "a", 0, 5)
		errs = append(errs, err)
		_, err = m.Stat(ctx, "a")
		errs = append(errs, err)
		for _, err := range m.List(ctx, "") {
			errs = append(errs, err)
		}
		_, err = Open(ctx, o)
		errs = append(errs, err)
		p.Save()
		_, err = tier.Publish(ctx, m, p.Upload(2))
		errs = append(errs, err)
		for _, err := range errs {
			if err == nil {
				t.Fatal("no error")
			}
			for _, format := range []string{"%v", "%+v", "%#v", "%q"} {
				texts = append(texts, fmt.Sprintf(format, err))
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				texts = append(texts, fmt.Sprintf("%v %+v", e, e))
			}
			echoed = echoed || strings.Contains(err.Error(), "Credential=…")
		}
	}
	texts = append(texts, m.String(), fmt.Sprintf("%v %+v", o, o))
	for _, text := range texts {
		if hasSecret(text) {
			t.Errorf("credentials in %s", text)
		}
	}
	if !echoed {
		t.Error("the server did not repeat the credentials, so this shows nothing")
	}
}

// TestCredentials_Sources gets the credentials from each place in turn.
func TestCredentials_Sources(t *testing.T) {
	s := server(t)
	file := filepath.Join(t.TempDir(), "credentials")
	text := fmt.Sprintf("[default]\naws_access_key_id = other\naws_secret_access_key = other\n[mine]\naws_access_key_id = %s\naws_secret_access_key = %s\n", s3test.AccessKey, s3test.SecretKey)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	expires := time.Now().Add(time.Hour)
	broken := false
	instance := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case broken:
			http.Error(w, "busy", http.StatusServiceUnavailable)
		case r.URL.Path == "/latest/api/token":
			fmt.Fprint(w, "token")
		case r.URL.Path == "/latest/meta-data/iam/security-credentials/":
			fmt.Fprint(w, "role")
		default:
			fmt.Fprintf(w, `{"Code": "Success", "AccessKeyId": %q, "SecretAccessKey": %q, "Token": %q, "Expiration": %q}`, s3test.AccessKey, s3test.SecretKey, sessionToken, expires.UTC().Format(time.RFC3339))
		}
	}))
	defer instance.Close()
	for name, vars := range map[string]map[string]string{
		"environment": {"AWS_ACCESS_KEY_ID": s3test.AccessKey, "AWS_SECRET_ACCESS_KEY": s3test.SecretKey},
		"file":        {"AWS_SHARED_CREDENTIALS_FILE": file, "AWS_PROFILE": "mine"},
		"container":   {"AWS_CONTAINER_CREDENTIALS_FULL_URI": instance.URL + "/creds", "AWS_EC2_METADATA_DISABLED": ""},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, vars)
			if err := open(t, options(s)).Create(t.Context(), name, []byte("x")); err != nil {
				t.Error(err)
			}
		})
	}
	setenv(t, map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file})
	if _, err := Open(t.Context(), options(s)); err == nil || !strings.Contains(err.Error(), "check the credentials") {
		t.Errorf("wrong credentials: %v", err)
	}
	setenv(t, nil)
	if _, err := Open(t.Context(), options(s)); !errors.Is(err, errNoCredentials) {
		t.Errorf("no credentials: %v", err)
	}
	// An instance's role; when it cannot be asked again for a moment, that is
	// temporary, and no request goes out without credentials.
	c := &chain{providers: []credentials.Provider{&credentials.IAM{Endpoint: instance.URL, Client: instance.Client()}}}
	v, err := c.Retrieve()
	if err != nil || v.AccessKeyID != s3test.AccessKey || v.SessionToken != sessionToken || c.IsExpired() {
		t.Fatalf("instance: %v", err)
	}
	broken = true
	if _, err := c.Retrieve(); !errors.Is(err, tier.ErrTemporary) {
		t.Errorf("instance without an answer: %v", err)
	}
}
