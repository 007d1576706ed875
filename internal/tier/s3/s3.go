// Package s3 keeps objects in an S3-compatible store.
//
// The object NAME is stored under the key PREFIX/NAME. A large object is
// uploaded in parts, several at a time. If that is interrupted, the next Put of
// the same name finds the unfinished upload, compares checksums of the parts
// that are there with its own, and uploads the others.
//
// An object exists when its last request succeeds; there is nothing that a
// crash could leave half done. Put and Create send the condition If-None-Match:
// *, so that the store itself refuses a second writer. Open finds out whether
// the store ignores that, and refuses such a store.
//
// Every request with content has a checksum that the store compares: CRC32C if
// the store knows it, otherwise MD5. Each object has the digest of its content
// as metadata (cairn-digest), which tells an equal object from a different one.
//
// Credentials come from where other programs look for them: the environment
// (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), the shared
// files (~/.aws/credentials, AWS_PROFILE), or the instance's role. They are in
// no message.
package s3

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/cairnrun/cairn/internal/tier"
)

// Options say where the store is, and how it is used.
type Options struct {
	URL string // s3://BUCKET or s3://BUCKET/PREFIX
	// Endpoint is the address of the store, as https://HOST; empty: that of the
	// environment (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL), or Amazon's.
	Endpoint string
	// Region is the region of the bucket; empty: that of the environment
	// (AWS_REGION, AWS_DEFAULT_REGION), or the store is asked.
	Region   string
	Parallel int // parts at a time, of all objects together; 0: 4
	// ReadOnly: nothing will be written, so Open does not try to.
	ReadOnly bool
	Retry    tier.Retry

	partSize int64 // tests only
}

const (
	defaultPart = 16 << 20
	maxParts    = 10_000
	digestKey   = "Cairn-Digest"
)

type s3Tier struct {
	core     minio.Core
	creds    *credentials.Credentials
	bucket   string
	prefix   string // empty, or ends with a slash
	retry    tier.Retry
	partSize int64
	readOnly bool
	buffers  chan []byte // bounds the memory that parts take
	crc      bool        // the store compares CRC32C
}

// Open returns the tier in a bucket, which must exist. Unless it is only to be
// read, Open writes and removes a small object, to find out what the store can
// do.
func Open(ctx context.Context, o Options) (tier.Tier, error) {
	s, err := newStore(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.URL, err)
	}
	s.retry = o.Retry
	err = s.retry.Do(ctx, func() error {
		ok, err := s.core.BucketExists(ctx, s.bucket)
		if err == nil && !ok {
			return fmt.Errorf("%s: there is no such bucket; create it first", s)
		}
		return s.fail(ctx, "", err)
	})
	if err == nil && !o.ReadOnly {
		err = s.probe(ctx)
	}
	if err != nil {
		return nil, err
	}
	return tier.Retrying(s, o.Retry), nil
}

func newStore(o Options) (*s3Tier, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("it must be s3://BUCKET or s3://BUCKET/PREFIX, and nothing else")
	}
	s := &s3Tier{bucket: u.Host, prefix: strings.Trim(u.Path, "/"), readOnly: o.ReadOnly, partSize: cmp.Or(o.partSize, defaultPart), buffers: make(chan []byte, cmp.Or(o.Parallel, 4))}
	for range cap(s.buffers) {
		s.buffers <- nil
	}
	if s.prefix != "" {
		if err := tier.CheckName(s.prefix); err != nil {
			return nil, err
		}
		s.prefix += "/"
	}
	at := cmp.Or(o.Endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com")
	end, err := url.Parse(at)
	if err != nil || end.Scheme != "https" && end.Scheme != "http" || end.Host == "" || end.User != nil || strings.Trim(end.Path, "/") != "" || end.RawQuery != "" {
		return nil, errors.New("the endpoint must be https://HOST or https://HOST:PORT, and nothing else")
	}
	region := cmp.Or(o.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if region == "" && !strings.HasSuffix(end.Hostname(), ".amazonaws.com") {
		region = "us-east-1" // what other stores expect
	}
	s.creds = credentials.New(newChain())
	client, err := minio.New(end.Host, &minio.Options{
		Creds: s.creds, Secure: end.Scheme == "https", Transport: transport(), Region: region,
		MaxRetries: 1, // tier.Retry does it
	})
	if err != nil {
		return nil, err
	}
	client.SetAppInfo("cairn", "1")
	s.core = minio.Core{Client: client}
	return s, nil
}

func (s *s3Tier) String() string { return "s3://" + strings.TrimSuffix(s.bucket+"/"+s.prefix, "/") }

// key returns the key of an object.
func (s *s3Tier) key(name string) (string, error) {
	if err := tier.CheckName(name); err != nil {
		return "", err
	}
	return s.prefix + name, nil
}

// writable is key for operations that change something.
func (s *s3Tier) writable(name string) (string, error) {
	if s.readOnly {
		return "", fmt.Errorf("%s: it was opened to be read only", s)
	}
	return s.key(name)
}

func (s *s3Tier) Create(ctx context.Context, name string, data []byte) error {
	key, err := s.writable(name)
	if err != nil {
		return err
	}
	return s.putSmall(ctx, name, key, tier.BytesSource(data), data)
}

func (s *s3Tier) Put(ctx context.Context, name string, src tier.Source) error {
	key, err := s.writable(name)
	if err != nil {
		return err
	}
	switch there, err := s.compare(ctx, name, key, src); {
	case err != nil:
		return err
	case there:
		return nil
	}
	if src.Size > s.partSize {
		return s.putParts(ctx, name, key, src)
	}
	buf, err := s.buffer(ctx, src.Size)
	if err != nil {
		return err
	}
	defer s.release(buf)
	if err := readAt(src, buf, 0); err != nil {
		return err
	}
	return s.putSmall(ctx, name, key, src, buf)
}

// putSmall stores an object with one request.
func (s *s3Tier) putSmall(ctx context.Context, name, key string, src tier.Source, data []byte) error {
	o, sum := s.putOptions(src), s.checksum(data)
	sum.addTo(&o)
	up, err := s.core.PutObject(ctx, s.bucket, key, bytes.NewReader(data), src.Size, sum.md5, "", o)
	if isCode(err, http.StatusPreconditionFailed) {
		return s.taken(ctx, name, key, src)
	}
	if err != nil {
		return s.fail(ctx, name, err)
	}
	switch up.ChecksumCRC32C {
	case "":
		return s.confirm(ctx, name, key, src)
	case sum.crc:
		return nil
	}
	return s.discard(ctx, name, key, "the content, and has another checksum of it")
}

// confirm checks that an object that the store has accepted is there. If it is
// not whole, it is removed.
func (s *s3Tier) confirm(ctx context.Context, name, key string, src tier.Source) error {
	info, err := s.core.StatObject(ctx, s.bucket, key, minio.StatObjectOptions{})
	switch {
	case isCode(err, http.StatusNotFound):
		return s.vanished(name)
	case err != nil:
		return s.fail(ctx, name, err)
	case info.Size == src.Size && sameDigest(info, src):
		return nil
	}
	return s.discard(ctx, name, key, fmt.Sprintf("%d bytes, and has %d, or another object", src.Size, info.Size))
}

func (s *s3Tier) vanished(name string) error {
	return fmt.Errorf("%s: %s: %w: it was stored, and is not there", s, name, tier.ErrTemporary)
}

// taken is called when the store says that the name is taken: by an equal
// object, perhaps of this process, or by a different one.
func (s *s3Tier) taken(ctx context.Context, name, key string, src tier.Source) error {
	there, err := s.compare(ctx, name, key, src)
	if err == nil && !there {
		err = s.vanished(name)
	}
	return err
}

// discard removes an object that this process has just stored, and that is not
// what was sent.
func (s *s3Tier) discard(ctx context.Context, name, key, what string) error {
	err := s.core.RemoveObject(ctx, s.bucket, key, minio.RemoveObjectOptions{})
	return errors.Join(fmt.Errorf("%s: %s: %w: the store accepted %s", s, name, tier.ErrTemporary, what), s.fail(ctx, name, err))
}

func (s *s3Tier) putOptions(src tier.Source) minio.PutObjectOptions {
	o := minio.PutObjectOptions{UserMetadata: map[string]string{digestKey: src.Digest.String()}, ContentType: "application/octet-stream"}
	o.SetMatchETagExcept("*")
	return o
}

func sameDigest(info minio.ObjectInfo, src tier.Source) bool {
	return strings.EqualFold(info.UserMetadata[digestKey], src.Digest.String())
}

// compare reports whether an object with the content of src is there. If the
// object is a different one, the error is ErrExists.
func (s *s3Tier) compare(ctx context.Context, name, key string, src tier.Source) (there bool, err error) {
	info, err := s.core.StatObject(ctx, s.bucket, key, minio.StatObjectOptions{})
	if isCode(err, http.StatusNotFound) {
		return false, nil
	}
	if err != nil {
		return false, s.fail(ctx, name, err)
	}
	switch {
	case info.Size == src.Size && sameDigest(info, src):
		return true, nil
	case info.Size == src.Size && info.UserMetadata[digestKey] == "":
		// Somebody else has put it there, perhaps a copy of the bucket.
		return true, s.compareContent(ctx, name, src)
	}
	return false, fmt.Errorf("%s: %s: %w", s, name, tier.ErrExists)
}

func (s *s3Tier) compareContent(ctx context.Context, name string, src tier.Source) error {
	r, err := s.Get(ctx, name, 0, src.Size)
	if err != nil {
		return err
	}
	defer r.Close()
	a, b := make([]byte, 1<<20), make([]byte, 1<<20)
	for off := int64(0); off < src.Size; off += int64(len(a)) {
		n := min(int64(len(a)), src.Size-off)
		if _, err := io.ReadFull(r, a[:n]); err != nil {
			return err
		}
		if err := readAt(src, b[:n], off); err != nil {
			return err
		}
		if !bytes.Equal(a[:n], b[:n]) {
			return fmt.Errorf("%s: %s: %w", s, name, tier.ErrExists)
		}
	}
	return nil
}

// readAt fills p, or fails.
func readAt(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// buffer returns n bytes. It waits until few enough are in use.
func (s *s3Tier) buffer(ctx context.Context, n int64) ([]byte, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case buf := <-s.buffers:
		if int64(cap(buf)) < n {
			buf = make([]byte, n)
		}
		return buf[:n], nil
	}
}

func (s *s3Tier) release(buf []byte) { s.buffers <- buf }

func (s *s3Tier) Stat(ctx context.Context, name string) (tier.Info, error) {
	key, err := s.key(name)
	if err != nil {
		return tier.Info{}, err
	}
	info, err := s.core.StatObject(ctx, s.bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return tier.Info{}, s.fail(ctx, name, err)
	}
	return tier.Info{Name: name, Size: info.Size, Modified: info.LastModified}, nil
}

func (s *s3Tier) Get(ctx context.Context, name string, offset, n int64) (io.ReadCloser, error) {
	key, err := s.key(name)
	if err != nil {
		return nil, err
	}
	short := func(size int64) error {
		return fmt.Errorf("%s: %s: %w: it has %d bytes; the request is for %d from %d on", s, name, tier.ErrDamaged, size, n, offset)
	}
	if n <= 0 || offset < 0 { // there is no range for it
		info, err := s.Stat(ctx, name)
		if err != nil {
			return nil, err
		}
		if n < 0 {
			n = info.Size - offset
		}
		if offset < 0 || n < 0 || offset > info.Size {
			return nil, short(info.Size)
		}
		if n == 0 {
			return http.NoBody, nil
		}
	}
	var o minio.GetObjectOptions
	o.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+n-1))
	r, info, _, err := s.core.GetObject(ctx, s.bucket, key, o)
	switch {
	case isCode(err, http.StatusRequestedRangeNotSatisfiable):
		return nil, short(-1)
	case err != nil:
		return nil, s.fail(ctx, name, err)
	case info.Size != n: // the length of the answer
		r.Close()
		return nil, short(offset + info.Size)
	}
	return &reader{s, ctx, name, r, n}, nil
}

// reader reads the body of an answer.
type reader struct {
	s    *s3Tier
	ctx  context.Context
	name string
	r    io.ReadCloser
	left int64
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	switch {
	case r.left == 0:
		return n, io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		err = r.s.fail(r.ctx, r.name, err)
	}
	return n, err
}

func (r *reader) Close() error { return r.r.Close() }

func (s *s3Tier) List(ctx context.Context, prefix string) iter.Seq2[tier.Info, error] {
	return func(yield func(tier.Info, error) bool) {
		if err := tier.CheckPrefix(prefix); err != nil {
			yield(tier.Info{}, err)
			return
		}
		for info, err := range s.list(ctx, s.prefix+prefix) {
			info.Name = strings.TrimPrefix(info.Name, s.prefix)
			if err == nil && tier.CheckName(info.Name) != nil {
				continue // not of a tier
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// list returns the objects whose keys begin with prefix. Info.Name is the key.
func (s *s3Tier) list(ctx context.Context, prefix string) iter.Seq2[tier.Info, error] {
	return func(yield func(tier.Info, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for o := range s.core.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
			if o.Err != nil {
				yield(tier.Info{}, s.fail(ctx, prefix, o.Err))
				return
			}
			if !yield(tier.Info{Name: o.Key, Size: o.Size, Modified: o.LastModified}, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(tier.Info{}, err)
		}
	}
}

func (s *s3Tier) Remove(ctx context.Context, name string) error {
	key, err := s.writable(name)
	if err != nil {
		return err
	}
	err = s.core.RemoveObject(ctx, s.bucket, key, minio.RemoveObjectOptions{})
	if isCode(err, http.StatusNotFound) {
		return nil
	}
	return s.fail(ctx, name, err)
}

func (s *s3Tier) Sweep(ctx context.Context, prefix string, before time.Time) error {
	if err := tier.CheckPrefix(prefix); err != nil {
		return err
	}
	if s.readOnly {
		return nil
	}
	for u, err := range s.uploads(ctx, s.prefix+prefix) {
		if err != nil {
			return err
		}
		if !u.Initiated.Before(before) {
			continue
		}
		if err := s.core.AbortMultipartUpload(ctx, s.bucket, u.Key, u.UploadID); err != nil && !isCode(err, http.StatusNotFound) {
			return s.fail(ctx, u.Key, err)
		}
	}
	return nil
}
