package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/cairnrun/cairn/internal/store"
)

// ErrConditions means that a store does not honour the conditions of writes.
var ErrConditions = errors.New("the store ignores conditions (If-None-Match), so two writers of one checkpoint could both succeed")

// probe finds out whether the store honours conditions, and whether it compares
// CRC32C checksums.
func (s *s3Tier) probe(ctx context.Context) error {
	key := s.prefix + ".probe-" + store.NewID()
	put := func(data string, sum checksum) error {
		o := minio.PutObjectOptions{UserMetadata: make(map[string]string)}
		o.SetMatchETagExcept("*")
		sum.addTo(&o)
		_, err := s.core.PutObject(ctx, s.bucket, key, strings.NewReader(data), int64(len(data)), sum.md5, "", o)
		return err
	}
	ignored := false // the conditions
	// Each request is repeated by itself: together, one of them might always
	// fail. A request that is repeated may have succeeded before.
	steps := []func() error{
		func() error { // a checksum that is wrong: a store that compares it refuses
			err := put("checksum", checksum{crc: encodeCRC(1)})
			s.crc = isCode(err, http.StatusBadRequest)
			ignored = isCode(err, http.StatusNotImplemented) // it knows no such header
			if s.crc || ignored || isCode(err, http.StatusPreconditionFailed) {
				return nil
			}
			return err
		},
		func() error {
			if s.crc {
				return nil
			}
			return s.core.RemoveObject(ctx, s.bucket, key, minio.RemoveObjectOptions{})
		},
		func() error {
			err := put("first", s.checksum([]byte("first")))
			if ignored = isCode(err, http.StatusNotImplemented); ignored || isCode(err, http.StatusPreconditionFailed) {
				return nil
			}
			return err
		},
		func() error {
			err := put("second", s.checksum([]byte("second")))
			if ignored = err == nil; isCode(err, http.StatusPreconditionFailed) {
				return nil
			}
			return err
		},
	}
	var err error
	for i := 0; i < len(steps) && err == nil && !ignored; i++ {
		err = s.retry.Do(ctx, func() error { return s.fail(ctx, "", steps[i]()) })
	}
	left, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	s.retry.Do(left, func() error {
		return s.fail(left, key, s.core.RemoveObject(left, s.bucket, key, minio.RemoveObjectOptions{}))
	})
	if err == nil && ignored {
		err = fmt.Errorf("%s: %w; use another store", s, ErrConditions)
	}
	return err
}
