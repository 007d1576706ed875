package s3test

import (
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

type part struct {
	PartNumber     int
	LastModified   string `xml:",omitempty"`
	ETag           string
	Size           int    `xml:",omitempty"`
	ChecksumCRC32C string `xml:",omitempty"`
}

// multipart serves the requests of multipart uploads.
func (s *Server) multipart(w http.ResponseWriter, r *http.Request, op, key string, body []byte, fault Fault) error {
	q := r.URL.Query()
	switch op {
	case "CreateUpload":
		s.next++
		id := fmt.Sprintf("upload-%d", s.next)
		s.uploads[id] = &upload{key, newObject(nil, r.Header).meta, make(map[int]*object), time.Now()}
		return reply(w, struct {
			XMLName               xml.Name `xml:"InitiateMultipartUploadResult"`
			Bucket, Key, UploadId string
		}{Bucket: Bucket, Key: key, UploadId: id})
	case "ListUploads":
		return s.listUploads(w, q.Get("prefix"), q.Get("key-marker"), q.Get("upload-id-marker"))
	}
	u := s.uploads[q.Get("uploadId")]
	if u == nil || u.key != key {
		return errNoUpload
	}
	switch op {
	case "UploadPart":
		n, err := strconv.Atoi(q.Get("partNumber"))
		if err != nil || n < 1 || n > 10_000 {
			return fmt.Errorf("part %q", q.Get("partNumber"))
		}
		o := newObject(body, nil)
		if fault != LosePart {
			u.parts[n] = o
		}
		s.headers(w, o)
		return nil
	case "ListParts":
		return s.listParts(w, u, q.Get("part-number-marker"))
	case "AbortUpload":
		delete(s.uploads, q.Get("uploadId"))
		w.WriteHeader(204)
		return nil
	case "CompleteUpload":
		return s.complete(w, r, u, q.Get("uploadId"), body, fault)
	}
	return fmt.Errorf("unknown operation %s", op)
}

func (s *Server) listUploads(w http.ResponseWriter, prefix, key, id string) error {
	type entry struct{ Key, UploadId, Initiated string }
	answer := struct {
		XMLName                           xml.Name `xml:"ListMultipartUploadsResult"`
		IsTruncated                       bool
		NextKeyMarker, NextUploadIdMarker string
		Upload                            []entry
	}{}
	var all []entry
	for id, u := range s.uploads {
		if strings.HasPrefix(u.key, prefix) {
			all = append(all, entry{u.key, id, u.started.UTC().Format(time.RFC3339Nano)})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.Key+"\x00"+a.UploadId, b.Key+"\x00"+b.UploadId) })
	for _, e := range all {
		if key != "" && e.Key+"\x00"+e.UploadId <= key+"\x00"+id {
			continue
		}
		if len(answer.Upload) == s.page() {
			last := answer.Upload[len(answer.Upload)-1]
			answer.IsTruncated, answer.NextKeyMarker, answer.NextUploadIdMarker = true, last.Key, last.UploadId
			break
		}
		answer.Upload = append(answer.Upload, e)
	}
	return reply(w, answer)
}

func (s *Server) listParts(w http.ResponseWriter, u *upload, after string) error {
	answer := struct {
		XMLName              xml.Name `xml:"ListPartsResult"`
		IsTruncated          bool
		NextPartNumberMarker int
		Part                 []part
	}{}
	from, _ := strconv.Atoi(after)
	for _, n := range slices.Sorted(maps.Keys(u.parts)) {
		if n <= from {
			continue
		}
		if len(answer.Part) == s.page() {
			answer.IsTruncated, answer.NextPartNumberMarker = true, answer.Part[len(answer.Part)-1].PartNumber
			break
		}
		o := u.parts[n]
		p := part{n, o.modified.UTC().Format(time.RFC3339Nano), `"` + o.etag + `"`, len(o.data), ""}
		if !s.IgnoreChecksums {
			p.ChecksumCRC32C = o.crc
		}
		answer.Part = append(answer.Part, p)
	}
	return reply(w, answer)
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request, u *upload, id string, body []byte, fault Fault) error {
	var list struct {
		Part []part
	}
	if err := xml.Unmarshal(body, &list); err != nil {
		return err
	}
	if err := s.condition(r, u.key); err != nil {
		return err
	}
	var data []byte
	sums := crc32.New(castagnoli)
	last := 0
	for i, p := range list.Part {
		o := u.parts[p.PartNumber]
		if o == nil || strings.Trim(p.ETag, `"`) != o.etag || p.PartNumber <= last || p.ChecksumCRC32C != "" && p.ChecksumCRC32C != o.crc && !s.IgnoreChecksums {
			return errInvalidPart
		}
		last = p.PartNumber
		if fault != LosePart || i != len(list.Part)/2 {
			data = append(data, o.data...)
		}
		sum := crc32.Checksum(o.data, castagnoli)
		sums.Write([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
	}
	o := newObject(data, nil)
	o.meta = u.meta
	o.etag = fmt.Sprintf("%s-%d", o.etag, len(list.Part))
	o.crc = fmt.Sprintf("%s-%d", encodeCRC(sums.Sum32()), len(list.Part))
	s.change(func() { s.objects[u.key] = o })
	delete(s.uploads, id)
	answer := struct {
		XMLName           xml.Name `xml:"CompleteMultipartUploadResult"`
		Bucket, Key, ETag string
		ChecksumCRC32C    string `xml:",omitempty"`
	}{Bucket: Bucket, Key: u.key, ETag: `"` + o.etag + `"`, ChecksumCRC32C: o.crc}
	if s.IgnoreChecksums {
		answer.ChecksumCRC32C = ""
	}
	return reply(w, answer)
}
