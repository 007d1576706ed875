package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
)

// ErrConditions means that a store does not honour the conditions of writes.
var ErrConditions = errors.New("the store ignores conditions (If-None-Match), so two writers of one checkpoint could both succeed")

// probe finds out whether the store honours conditions, and whether it compares
// CRC32C checksums.
func (s *s3Tier) probe(ctx context.Context, o Options) error {
	key := s.prefix + ".probe-" + store.NewID()
	put := func(data string, sum checksum) error {
		o := minio.PutObjectOptions{UserMetadata: make(map[string]string)}
		o.SetMatchETagExcept("*")
		sum.addTo(&o)
		_, err := s.core.PutObject(ctx, s.bucket, key, strings.NewReader(data), int64(len(data)), sum.md5, "", o)
		return err
	}
	// Each request is repeated by itself: together, one of them might always
	// fail. A request that is repeated may have succeeded before.
	steps := []func() error{
		func() error { // a checksum that is wrong: a store that compares it refuses
			err := put("checksum", checksum{crc: encodeCRC(1)})
			s.crc = isCode(err, http.StatusBadRequest)
			s.locks = isCode(err, http.StatusNotImplemented) // it knows no such header
			if s.crc || s.locks || isCode(err, http.StatusPreconditionFailed) {
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
			if s.locks = isCode(err, http.StatusNotImplemented); s.locks || isCode(err, http.StatusPreconditionFailed) {
				return nil
			}
			return err
		},
		func() error {
			err := put("second", s.checksum([]byte("second")))
			if s.locks = err == nil; isCode(err, http.StatusPreconditionFailed) {
				return nil
			}
			return err
		},
	}
	var err error
	for i := 0; i < len(steps) && err == nil && !s.locks; i++ {
		err = s.retry.Do(ctx, func() error { return s.fail(ctx, "", steps[i]()) })
	}
	s.cleanUp(ctx, key)
	if err != nil || !s.locks {
		return err
	}
	if !o.AllowLock {
		return fmt.Errorf("%s: %w; use another store", s, ErrConditions)
	}
	if o.Warn != nil {
		o.Warn(fmt.Sprintf("%s: %v; lock objects are used, which is safe as long as no host stops for minutes in the middle of a write", s, ErrConditions))
	}
	return nil
}

// cleanUp removes an object of this process, even if ctx is done.
func (s *s3Tier) cleanUp(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return s.retry.Do(ctx, func() error {
		return s.fail(ctx, key, s.core.RemoveObject(ctx, s.bucket, key, minio.RemoveObjectOptions{}))
	})
}

// lockAge is how old a lock must be to have been left by a process that died.
const lockAge = 10 * time.Minute

// lockRetry is for locks of other writers, which take a moment.
var lockRetry = tier.Retry{Tries: 60, First: 20 * time.Millisecond, Max: 2 * time.Second}

// createLocked is Create for a store without conditions. A writer puts a lock
// with a name of its own, and lists the locks of the object. If there is
// another one, it removes its own and tries again later. Otherwise nobody else
// can write until it has removed it: whoever lists later sees it.
func (s *s3Tier) createLocked(ctx context.Context, name, key string, data []byte) error {
	prefix := fmt.Sprintf("%s.lock-%x-", s.prefix, xxh3.HashString128(name).Bytes())
	src := tier.BytesSource(data)
	return lockRetry.Do(ctx, func() (err error) {
		lock := prefix + store.NewID()
		_, err = s.core.PutObject(ctx, s.bucket, lock, bytes.NewReader(nil), 0, "", "", minio.PutObjectOptions{})
		if err != nil {
			return s.fail(ctx, name, err)
		}
		defer func() {
			if rerr := s.cleanUp(ctx, lock); err == nil {
				err = rerr
			}
		}()
		if err := s.alone(ctx, name, prefix, lock); err != nil {
			return err
		}
		if there, err := s.compare(ctx, name, key, src); there || err != nil {
			return err
		}
		return s.putSmall(ctx, name, key, src, data)
	})
}

// alone checks that there is no other lock. It removes locks that were left.
func (s *s3Tier) alone(ctx context.Context, name, prefix, lock string) error {
	var own time.Time
	var others []tier.Info
	for info, err := range s.list(ctx, prefix) {
		if err != nil {
			return err
		}
		if info.Name == lock {
			own = info.Modified
		} else {
			others = append(others, info)
		}
	}
	if own.IsZero() {
		return fmt.Errorf("%s: %s: %w: the store does not list what was just written", s, name, tier.ErrTemporary)
	}
	for _, info := range others {
		if own.Sub(info.Modified) < lockAge {
			return fmt.Errorf("%s: %s: %w: another process writes it", s, name, tier.ErrTemporary)
		}
		if err := s.core.RemoveObject(ctx, s.bucket, info.Name, minio.RemoveObjectOptions{}); err != nil {
			return s.fail(ctx, name, err)
		}
	}
	return nil
}
