package s3

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/cairnrun/cairn/internal/tier"
)

var errNoCredentials = errors.New("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write them to ~/.aws/credentials, or use a host whose role may use the bucket")

// chain asks one provider after the other for credentials. When the credentials
// expire, chain asks only the provider that had them: a store must not get
// requests without credentials because a server was busy for a moment.
type chain struct {
	mu        sync.Mutex
	providers []credentials.Provider
	chosen    credentials.Provider
}

func newChain() *chain {
	c := &chain{providers: []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}}
	if !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		c.providers = append(c.providers, &credentials.IAM{Client: &http.Client{Timeout: 10 * time.Second}})
	}
	return c
}

func (c *chain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.chosen != nil {
		v, err := c.chosen.RetrieveWithCredContext(cc)
		if err != nil || v.AccessKeyID == "" {
			return v, fmt.Errorf("%w: the credentials cannot be renewed", tier.ErrTemporary)
		}
		return v, nil
	}
	for _, p := range c.providers {
		v, err := p.RetrieveWithCredContext(cc)
		if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			c.chosen = p
			return v, nil
		}
	}
	return credentials.Value{}, errNoCredentials
}

func (c *chain) Retrieve() (credentials.Value, error) { return c.RetrieveWithCredContext(nil) }

func (c *chain) IsExpired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.chosen == nil || c.chosen.IsExpired()
}

// stall is how long a connection may move nothing.
const stall = 2 * time.Minute

// transport returns an HTTP transport whose connections fail when nothing moves
// any more.
func transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	dial := (&net.Dialer{Timeout: 30 * time.Second}).DialContext
	t.DialContext = stalling(dial, stall)
	t.ForceAttemptHTTP2 = false
	t.MaxIdleConnsPerHost = 64
	t.DisableCompression = true
	return t
}
