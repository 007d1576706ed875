package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"iter"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/cairnrun/cairn/internal/tier"
)

// checksum is what the store compares with the content of a request: one of the
// two.
type checksum struct {
	md5, crc string // base64
	bits     uint32 // crc
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	crcHeader       = "X-Amz-Checksum-Crc32c"
	algorithmHeader = "X-Amz-Checksum-Algorithm"
)

func (s *s3Tier) checksum(data []byte) checksum {
	if s.crc {
		bits := crc32.Checksum(data, castagnoli)
		return checksum{crc: encodeCRC(bits), bits: bits}
	}
	sum := md5.Sum(data)
	return checksum{md5: base64.StdEncoding.EncodeToString(sum[:])}
}

func encodeCRC(bits uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, bits))
}

// addTo adds a CRC32C to the headers of a request. An MD5 is passed by itself.
func (c checksum) addTo(o *minio.PutObjectOptions) {
	if c.crc != "" {
		o.UserMetadata[crcHeader] = c.crc
	}
}

// is reports whether a stored part has the same checksum.
func (c checksum) is(p minio.ObjectPart) bool {
	if c.crc != "" {
		return p.ChecksumCRC32C == c.crc
	}
	sum, err := base64.StdEncoding.DecodeString(c.md5)
	return err == nil && strings.Trim(p.ETag, `"`) == hex.EncodeToString(sum) // in most stores
}

// putParts stores an object in several parts.
func (s *s3Tier) putParts(ctx context.Context, name, key string, src tier.Source) error {
	size := s.partSize
	if least := (src.Size + maxParts - 1) / maxParts; size < least {
		size = (least + 1<<20 - 1) >> 20 << 20
	}
	id, have, err := s.unfinished(ctx, name, key)
	if err != nil {
		return err
	}
	if id == "" {
		o := s.putOptions(src)
		if s.crc {
			o.UserMetadata[algorithmHeader] = "CRC32C"
		}
		if id, err = s.core.NewMultipartUpload(ctx, s.bucket, key, o); err != nil {
			return s.fail(ctx, name, err)
		}
	}
	n := int((src.Size + size - 1) / size)
	parts, sums := make([]minio.CompletePart, n), make([]checksum, n)
	jobs := make([]func(context.Context) error, n)
	for i := range jobs {
		jobs[i] = func(ctx context.Context) (err error) {
			buf, err := s.buffer(ctx, min(size, src.Size-int64(i)*size))
			if err != nil {
				return err
			}
			defer s.release(buf)
			if err := readAt(src, buf, int64(i)*size); err != nil {
				return err
			}
			sums[i] = s.checksum(buf)
			parts[i], err = s.putPart(ctx, name, key, id, i+1, buf, sums[i], have[i+1])
			return err
		}
	}
	if err := tier.Parallel(ctx, cap(s.buffers), jobs); err != nil {
		return err
	}
	return s.complete(ctx, name, key, src, id, parts, sums)
}

// putPart stores a part, unless it is there.
func (s *s3Tier) putPart(ctx context.Context, name, key, id string, number int, data []byte, sum checksum, have minio.ObjectPart) (minio.CompletePart, error) {
	if have.Size == int64(len(data)) && sum.is(have) {
		return minio.CompletePart{PartNumber: number, ETag: have.ETag, ChecksumCRC32C: sum.crc}, nil
	}
	o := minio.PutObjectPartOptions{Md5Base64: sum.md5}
	if sum.crc != "" {
		o.CustomHeader = http.Header{crcHeader: {sum.crc}}
	}
	var part minio.ObjectPart
	err := s.retry.Do(ctx, func() (err error) {
		part, err = s.core.PutObjectPart(ctx, s.bucket, key, id, number, bytes.NewReader(data), int64(len(data)), o)
		if err == nil && part.ChecksumCRC32C != "" && sum.crc != "" && part.ChecksumCRC32C != sum.crc {
			err = fmt.Errorf("%w: the store has another checksum of part %d", tier.ErrTemporary, number)
		}
		return s.fail(ctx, name, err)
	})
	return minio.CompletePart{PartNumber: number, ETag: part.ETag, ChecksumCRC32C: sum.crc}, err
}

func (s *s3Tier) complete(ctx context.Context, name, key string, src tier.Source, id string, parts []minio.CompletePart, sums []checksum) error {
	var o minio.PutObjectOptions
	o.SetMatchETagExcept("*")
	up, err := s.core.CompleteMultipartUpload(ctx, s.bucket, key, id, parts, o)
	switch {
	case isCode(err, http.StatusPreconditionFailed):
		s.core.AbortMultipartUpload(ctx, s.bucket, key, id) // if it stays, Sweep removes it
		return s.taken(ctx, name, key, src)
	case hasCode(err, "InvalidPart"): // the store has lost it; the next try finds out
		return fmt.Errorf("%w: %w", tier.ErrTemporary, s.fail(ctx, name, err))
	case err != nil:
		return s.fail(ctx, name, err)
	}
	if want := composite(sums); s.crc && up.ChecksumCRC32C != "" && up.ChecksumCRC32C != want {
		return s.discard(ctx, name, key, "parts, and has put others together")
	}
	return s.confirm(ctx, name, key, src)
}

// composite returns the checksum of an object with these parts: that of their
// checksums.
func composite(sums []checksum) string {
	var all []byte
	for _, sum := range sums {
		all = binary.BigEndian.AppendUint32(all, sum.bits)
	}
	return fmt.Sprintf("%s-%d", encodeCRC(crc32.Checksum(all, castagnoli)), len(sums))
}

// unfinished returns an upload of this object that was interrupted, and its
// parts; or none.
func (s *s3Tier) unfinished(ctx context.Context, name, key string) (id string, have map[int]minio.ObjectPart, err error) {
	for u, err := range s.uploads(ctx, key) {
		if err != nil {
			return "", nil, err
		}
		if u.Key != key {
			continue
		}
		have = make(map[int]minio.ObjectPart)
		for marker, more := 0, true; more; {
			list, err := s.core.ListObjectParts(ctx, s.bucket, key, u.UploadID, marker, 1000)
			if isCode(err, http.StatusNotFound) {
				clear(have) // completed or aborted meanwhile
				break
			}
			if err != nil {
				return "", nil, s.fail(ctx, name, err)
			}
			for _, p := range list.ObjectParts {
				have[p.PartNumber] = p
				marker = p.PartNumber
			}
			more = list.IsTruncated && len(list.ObjectParts) > 0
		}
		// All must have the checksums that the other parts get.
		suitable := len(have) > 0
		for _, p := range have {
			suitable = suitable && s.crc == (p.ChecksumCRC32C != "")
		}
		if suitable {
			return u.UploadID, have, nil
		}
	}
	return "", nil, nil
}

// uploads returns the unfinished uploads of keys that begin with prefix.
func (s *s3Tier) uploads(ctx context.Context, prefix string) iter.Seq2[minio.ObjectMultipartInfo, error] {
	return func(yield func(minio.ObjectMultipartInfo, error) bool) {
		for key, id, more := "", "", true; more; {
			list, err := s.core.ListMultipartUploads(ctx, s.bucket, prefix, key, id, "", 1000)
			if err != nil {
				yield(minio.ObjectMultipartInfo{}, s.fail(ctx, prefix, err))
				return
			}
			for _, u := range list.Uploads {
				if !yield(u, nil) {
					return
				}
			}
			key, id = list.NextKeyMarker, list.NextUploadIDMarker
			more = list.IsTruncated && key != ""
		}
	}
}
