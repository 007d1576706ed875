// Package s3test is a small S3 server in memory, for tests. It knows what
// package s3 uses: one bucket, objects with metadata, conditional writes,
// checksums, lists and multipart uploads. On request it misbehaves, as real
// stores and the networks to them do.
package s3test

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// These are the server's bucket and the credentials that it accepts.
const (
	Bucket    = "bucket"
	AccessKey = "AKIDEXAMPLE0123456"
	SecretKey = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"
)

// Fault is what goes wrong with one request.
type Fault int

const (
	None          Fault = iota
	Error500            // nothing is done
	Error500After       // it is done, and 500 is the answer
	SlowDown            // nothing is done, and 503 is the answer
	Reset               // the connection is closed, nothing is done
	ResetAfter          // it is done, and the connection is closed
	Truncate            // the body of the answer ends early
	Flip                // a bit of the stored or returned content is changed
	Stale               // a list does not have what the last change did
	LosePart            // a part is acknowledged and lost
	Deny                // 403, with the request's headers in the message
	Hang                // no answer until the client gives up
	Short               // half of the content is stored
)

// Server is an S3 server. Its fields may be set before it is used.
type Server struct {
	*httptest.Server
	// Fault is called for every request with its operation (PutObject,
	// GetObject, HeadObject, DeleteObject, ListObjects, CreateUpload,
	// UploadPart, ListParts, CompleteUpload, AbortUpload, ListUploads,
	// HeadBucket) and key. It may be called concurrently.
	Fault func(op, key string) Fault
	// IgnoreConditions: If-None-Match has no effect.
	IgnoreConditions bool
	// RefuseConditions: a request with If-None-Match is answered with 501.
	RefuseConditions bool
	// IgnoreChecksums: x-amz-checksum-crc32c has no effect and is not returned.
	IgnoreChecksums bool
	// PageSize is how many entries a list has; 0: 1000.
	PageSize int

	mu      sync.Mutex
	objects map[string]*object
	before  map[string]*object // the objects before the last change
	frozen  bool               // before stays as it is
	uploads map[string]*upload
	next    int
	counts  map[string]int
}

type object struct {
	data     []byte
	etag     string
	crc      string
	meta     http.Header
	modified time.Time
}

type upload struct {
	key     string
	meta    http.Header
	parts   map[int]*object
	started time.Time
}

// New returns a server that runs until Close.
func New() *Server {
	s := &Server{objects: make(map[string]*object), uploads: make(map[string]*upload), counts: make(map[string]int)}
	s.Server = httptest.NewServer(s)
	return s
}

// Count returns how many requests of an operation were served.
func (s *Server) Count(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[op]
}

// Keys returns the keys of all objects, in order.
func (s *Server) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Uploads returns the keys of unfinished uploads.
func (s *Server) Uploads() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for _, u := range s.uploads {
		keys = append(keys, u.key)
	}
	return keys
}

// Change replaces the content of an object behind the client's back.
func (s *Server) Change(key string, f func(data []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := *s.objects[key]
	o.data = f(bytes.Clone(o.data))
	s.objects[key] = &o
}

// failure is an answer with an error.
type failure struct {
	status  int
	code    string
	message string
}

func (f *failure) Error() string { return f.code }

var (
	errNoKey        = &failure{404, "NoSuchKey", "The specified key does not exist."}
	errNoUpload     = &failure{404, "NoSuchUpload", "The specified upload does not exist."}
	errPrecondition = &failure{412, "PreconditionFailed", "At least one of the preconditions you specified did not hold."}
	errBadDigest    = &failure{400, "BadDigest", "The checksum you specified did not match what we received."}
	errInvalidPart  = &failure{400, "InvalidPart", "One or more of the specified parts could not be found."}
)

// operation names the request.
func operation(r *http.Request, key string) string {
	q := r.URL.Query()
	switch {
	case key == "" && r.Method == "HEAD":
		return "HeadBucket"
	case key == "" && q.Has("uploads"):
		return "ListUploads"
	case key == "" && q.Has("location"):
		return "Location"
	case key == "":
		return "ListObjects"
	case r.Method == "POST" && q.Has("uploads"):
		return "CreateUpload"
	case r.Method == "POST" && q.Has("uploadId"):
		return "CompleteUpload"
	case r.Method == "PUT" && q.Has("uploadId"):
		return "UploadPart"
	case r.Method == "GET" && q.Has("uploadId"):
		return "ListParts"
	case r.Method == "DELETE" && q.Has("uploadId"):
		return "AbortUpload"
	}
	return map[string]string{"PUT": "PutObject", "GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject"}[r.Method]
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	op := operation(r, key)
	fault := None
	if s.Fault != nil {
		fault = s.Fault(op, key)
	}
	s.mu.Lock()
	s.counts[op]++
	s.mu.Unlock()
	body, err := readBody(r)
	switch {
	case err != nil:
		panic(http.ErrAbortHandler) // the client has gone
	case fault == Hang:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case fault == Reset:
		panic(http.ErrAbortHandler)
	case fault == Error500:
		s.fail(w, r, &failure{500, "InternalError", "We encountered an internal error. Please try again."})
		return
	case fault == SlowDown:
		s.fail(w, r, &failure{503, "SlowDown", "Please reduce your request rate."})
		return
	case fault == Deny, !strings.Contains(r.Header.Get("Authorization"), "Credential="+AccessKey+"/"):
		s.fail(w, r, &failure{403, "AccessDenied", fmt.Sprintf("Access Denied: %v", r.Header)})
		return
	case bucket != Bucket:
		s.fail(w, r, &failure{404, "NoSuchBucket", "The specified bucket does not exist"})
		return
	}
	if (fault == Flip || fault == Short) && len(body) > 0 && (op == "PutObject" || op == "UploadPart") {
		if err := s.verify(r, body); err != nil {
			s.fail(w, r, err)
			return
		}
		if fault == Flip {
			body[len(body)/2] ^= 1
		} else {
			body = body[:len(body)/2]
		}
	}
	answer := httptest.NewRecorder()
	if err := s.do(answer, r, op, key, body, fault); err != nil {
		s.fail(answer, r, err)
	}
	switch fault {
	case Error500After:
		s.fail(w, r, &failure{500, "InternalError", "We encountered an internal error. Please try again."})
		return
	case ResetAfter:
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), answer.Header())
	text := answer.Body.Bytes()
	if op == "GetObject" && fault == Flip && len(text) > 0 {
		text[len(text)/2] ^= 1
	}
	if w.Header().Get("Content-Length") == "" {
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	}
	w.WriteHeader(answer.Code)
	if fault == Truncate && len(text) > 0 {
		w.Write(text[:len(text)/2])
		panic(http.ErrAbortHandler)
	}
	w.Write(text)
}

// readBody returns the content of a request, which may be in signed chunks.
func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil || !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return body, err
	}
	var out []byte
	for {
		head, rest, ok := bytes.Cut(body, []byte("\r\n"))
		size, _, _ := bytes.Cut(head, []byte(";"))
		n, err := strconv.ParseUint(string(size), 16, 31)
		if !ok || err != nil || len(rest) < int(n)+2 && n > 0 {
			return nil, errors.New("bad chunks")
		}
		if n == 0 {
			return out, nil
		}
		out = append(out, rest[:n]...)
		body = rest[n+2:]
	}
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	f, ok := err.(*failure)
	if !ok {
		f = &failure{400, "InvalidArgument", err.Error()}
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(f.status)
	if r.Method != "HEAD" {
		xml.NewEncoder(w).Encode(struct {
			XMLName xml.Name `xml:"Error"`
			Code    string
			Message string
		}{Code: f.code, Message: f.message})
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc(data []byte) string { return encodeCRC(crc32.Checksum(data, castagnoli)) }

func encodeCRC(sum uint32) string {
	return base64.StdEncoding.EncodeToString([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

// verify checks the checksums of a request.
func (s *Server) verify(r *http.Request, body []byte) error {
	sum := md5.Sum(body)
	if want := r.Header.Get("Content-Md5"); want != "" && want != base64.StdEncoding.EncodeToString(sum[:]) {
		return errBadDigest
	}
	if want := r.Header.Get("X-Amz-Checksum-Crc32c"); want != "" && want != crc(body) && !s.IgnoreChecksums {
		return errBadDigest
	}
	return nil
}

// do serves a request.
func (s *Server) do(w http.ResponseWriter, r *http.Request, op, key string, body []byte, fault Fault) error {
	if fault != Flip && fault != Short {
		if err := s.verify(r, body); err != nil {
			return err
		}
	}
	if s.RefuseConditions && r.Header.Get("If-None-Match") != "" {
		return &failure{501, "NotImplemented", "A header you provided implies functionality that is not implemented."}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch op {
	case "HeadBucket":
		return nil
	case "Location":
		return reply(w, struct {
			XMLName xml.Name `xml:"LocationConstraint"`
		}{})
	case "PutObject":
		if err := s.condition(r, key); err != nil {
			return err
		}
		o := newObject(body, r.Header)
		s.change(func() { s.objects[key] = o })
		s.headers(w, o)
		return nil
	case "HeadObject", "GetObject":
		return s.get(w, r, key)
	case "DeleteObject":
		s.change(func() { delete(s.objects, key) })
		w.WriteHeader(204)
		return nil
	case "ListObjects":
		return s.list(w, r, fault)
	}
	return s.multipart(w, r, op, key, body, fault)
}

// change changes the objects and remembers what was before.
func (s *Server) change(f func()) {
	if !s.frozen {
		s.before = maps.Clone(s.objects)
	}
	f()
}

func (s *Server) condition(r *http.Request, key string) error {
	if r.Header.Get("If-None-Match") == "*" && s.objects[key] != nil && !s.IgnoreConditions {
		return errPrecondition
	}
	return nil
}

func newObject(data []byte, h http.Header) *object {
	sum := md5.Sum(data)
	o := &object{data: data, etag: hex.EncodeToString(sum[:]), crc: crc(data), meta: make(http.Header), modified: time.Now()}
	for k, v := range h {
		if strings.HasPrefix(k, "X-Amz-Meta-") {
			o.meta[k] = v
		}
	}
	return o
}

func (s *Server) headers(w http.ResponseWriter, o *object) {
	w.Header().Set("ETag", `"`+o.etag+`"`)
	if !s.IgnoreChecksums {
		w.Header().Set("X-Amz-Checksum-Crc32c", o.crc)
	}
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, key string) error {
	o := s.objects[key]
	if o == nil {
		return errNoKey
	}
	s.headers(w, o)
	maps.Copy(w.Header(), o.meta)
	w.Header().Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	data, status := o.data, 200
	if spec := r.Header.Get("Range"); spec != "" {
		var first, last int
		if n, _ := fmt.Sscanf(spec, "bytes=%d-%d", &first, &last); n < 2 {
			last = len(data) - 1
		}
		if first >= len(data) || first > last {
			return &failure{416, "InvalidRange", "The requested range is not satisfiable"}
		}
		last = min(last, len(data)-1)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(data)))
		data, status = data[first:last+1], 206
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	if r.Method == "GET" {
		w.Write(data)
	}
	return nil
}

func reply(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/xml")
	return xml.NewEncoder(w).Encode(v)
}

func (s *Server) page() int {
	if s.PageSize > 0 {
		return s.PageSize
	}
	return 1000
}

type entry struct {
	Key          string
	LastModified string
	ETag         string
	Size         int
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, fault Fault) error {
	q := r.URL.Query()
	if q.Get("list-type") != "2" {
		return errors.New("only version 2 of lists")
	}
	from := s.objects
	if fault == Stale {
		from = s.before
	}
	after := max(q.Get("continuation-token"), q.Get("start-after"))
	answer := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []entry
	}{}
	for _, key := range slices.Sorted(maps.Keys(from)) {
		if !strings.HasPrefix(key, q.Get("prefix")) || key <= after {
			continue
		}
		if len(answer.Contents) == s.page() {
			answer.IsTruncated = true
			answer.NextContinuationToken = answer.Contents[len(answer.Contents)-1].Key
			break
		}
		o := from[key]
		answer.Contents = append(answer.Contents, entry{key, o.modified.UTC().Format(time.RFC3339Nano), `"` + o.etag + `"`, len(o.data)})
	}
	return reply(w, answer)
}

// Content returns the content of an object.
func (s *Server) Content(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key].data
}

// Forget removes an object.
func (s *Server) Forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
}

// Freeze makes stale lists have the present objects, except one, until the
// function that it returns is called.
func (s *Server) Freeze(without string) (thaw func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.frozen = maps.Clone(s.objects), true
	delete(s.before, without)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.frozen = false
	}
}

// ForgetMetadata removes the metadata of an object.
func (s *Server) ForgetMetadata(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key].meta = nil
}
