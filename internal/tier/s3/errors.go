package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/cairnrun/cairn/internal/tier"
)

// isCode reports whether the store answered with an HTTP status.
func isCode(err error, status int) bool {
	var r minio.ErrorResponse
	return errors.As(err, &r) && r.StatusCode == status
}

// hasCode reports whether the store answered with one of these codes of S3.
func hasCode(err error, codes ...string) bool {
	var r minio.ErrorResponse
	return errors.As(err, &r) && slices.Contains(codes, r.Code)
}

// fail gives an error of a request its type, a place and a remedy. It removes
// credentials from its text.
func (s *s3Tier) fail(ctx context.Context, name string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, own := range []error{tier.ErrTemporary, tier.ErrDamaged, errNoCredentials} {
		if errors.Is(err, own) {
			return s.place(name, err)
		}
	}
	remedy, kind := classify(err)
	err = s.redact(err)
	if remedy != "" {
		err = fmt.Errorf("%w (%s)", err, remedy)
	}
	if kind != nil {
		err = fmt.Errorf("%w: %w", kind, err)
	}
	return s.place(name, err)
}

func (s *s3Tier) place(name string, err error) error {
	if name == "" {
		return fmt.Errorf("%s: %w", s, err)
	}
	return fmt.Errorf("%s: %s: %w", s, name, err)
}

// classify returns what to do about an error, and its kind, or nil if it is
// permanent.
func classify(err error) (remedy string, kind error) {
	var r minio.ErrorResponse
	var cert *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &cert), errors.As(err, &authority):
		return "set SSL_CERT_FILE to the certificate of the store's authority", nil
	case !errors.As(err, &r):
		return "", tier.ErrTemporary // the network
	}
	switch r.Code {
	case "NoSuchBucket":
		return "create the bucket", nil
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "AllAccessDisabled", "AccountProblem":
		return "check the credentials, and what they may do with this bucket", nil
	case "RequestTimeTooSkewed":
		return "set this host's clock", nil
	case "RequestTimeout", "BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "IncompleteBody", "ExpiredToken", "SlowDown", "OperationAborted", "ConditionalRequestConflict", "NoSuchUpload":
		return "", tier.ErrTemporary
	case "QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity":
		return "the store is full", nil
	}
	switch {
	case r.StatusCode == http.StatusNotFound:
		return "", tier.ErrNotExist
	case r.StatusCode == http.StatusNotImplemented:
		return "the store does not know this operation", nil
	case r.StatusCode >= 500, r.StatusCode == http.StatusRequestTimeout, r.StatusCode == http.StatusTooManyRequests, r.StatusCode == http.StatusConflict:
		return "", tier.ErrTemporary
	}
	return "", nil
}

// redact removes credentials from the text of an error. A store may repeat what
// it was sent.
func (s *s3Tier) redact(err error) error {
	v, cerr := s.creds.GetWithContext(nil)
	if cerr != nil {
		return err
	}
	text := err.Error()
	for _, secret := range []string{v.SecretAccessKey, v.SessionToken, v.AccessKeyID} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}
