//go:build linux

package web

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/client"
)

const (
	requestLimit = 64 << 10        // size of a request's body
	endTime      = 2 * time.Second // how long requests may take after Close
)

// Server shows one run. It is an http.Handler.
type Server struct {
	run   string
	token string
	local bool // only names of this machine are served
	mux   *http.ServeMux
	watch *watcher
	meter *meter
}

// New returns a server for a run directory. Without a token, visitors can only
// look. If local is set, the server refuses requests for other host names: a
// page from elsewhere could use them to reach it.
func New(run, token string, local bool) *Server {
	s := &Server{run: run, token: token, local: local, mux: http.NewServeMux(), watch: newWatcher(run)}
	s.meter = newMeter(s.watch)
	s.mux.HandleFunc("GET /{$}", s.page)
	s.mux.HandleFunc("GET /stream", s.stream)
	s.mux.HandleFunc("GET /output", s.output)
	s.mux.Handle("GET /metrics", s.meter.handler())
	s.mux.HandleFunc("POST /checkpoint", s.steer(func(ctx context.Context, _ *request) (any, error) {
		return client.Checkpoint(ctx, run, "web page")
	}))
	s.mux.HandleFunc("POST /stop", s.steer(func(ctx context.Context, _ *request) (any, error) {
		return client.Stop(ctx, run, "web page")
	}))
	s.mux.HandleFunc("POST /migrate", s.steer(func(ctx context.Context, r *request) (any, error) {
		if len(r.Ranks) == 0 && r.Host == "" {
			return nil, errors.New("name ranks, or a host that they leave")
		}
		return client.Migrate(ctx, run, client.Migration{Ranks: r.Ranks, Host: r.Host, To: r.To, Rounds: control.DefaultRounds}, nil)
	}))
	return s
}

// request is the body of a POST.
type request struct {
	Ranks []int  `json:"ranks"`
	Host  string `json:"host"`
	To    string `json:"to"`
}

// Close ends all streams.
func (s *Server) Close() { s.watch.close() }

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if s.local && !thisMachine(r.Host) {
		http.Error(w, "This server answers requests for this machine only; use http://localhost.", http.StatusForbidden)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// thisMachine reports whether the host of a URL can only be this machine:
// localhost, or an address of loopback. Other names may be this machine's, too,
// but whoever has the name decides that.
func thisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// page sends the page. It needs nothing else, and may load nothing else.
func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		digest(pageJS), digest(pageCSS)))
	fmt.Fprint(w, strings.NewReplacer("/*page.css*/", pageCSS, "/*page.js*/", pageJS).Replace(pageHTML))
}

// digest returns the name of an inline script or style in the page's policy.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// owner reports whether a request has the token.
func (s *Server) owner(r *http.Request) bool {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return s.token != "" && bearer && subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}

// steer answers a request that changes the run. The token comes in a header,
// which a browser does not add to requests of other pages.
func (s *Server) steer(do func(context.Context, *request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		reply := func(status int, v any) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			json.NewEncoder(w).Encode(v)
		}
		type failed struct {
			Error string `json:"error"`
		}
		if !s.owner(r) {
			reply(http.StatusForbidden, failed{"This needs the token: open the address that cairn has printed."})
			return
		}
		if from := r.Header.Get("Sec-Fetch-Site"); from != "" && from != "same-origin" {
			reply(http.StatusForbidden, failed{"This request comes from another page."})
			return
		}
		var q request
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, requestLimit))
		d.DisallowUnknownFields()
		if err := d.Decode(&q); err != nil {
			reply(http.StatusBadRequest, failed{"The request is not understood: " + err.Error()})
			return
		}
		out := http.NewResponseController(w)
		out.SetWriteDeadline(time.Time{}) // a migration may take long
		v, err := do(r.Context(), &q)
		out.SetWriteDeadline(time.Now().Add(writeTime))
		if err != nil {
			reply(http.StatusConflict, failed{err.Error()})
			return
		}
		reply(http.StatusOK, v)
	}
}

// Serve answers requests on a listener until the server is closed and the last
// ones are answered.
func Serve(l net.Listener, s *Server) error {
	c := connections{idle: make(map[net.Conn]time.Time)}
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: 64 << 10, ConnState: c.change}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-s.watch.over
		ctx, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		if h.Shutdown(ctx) != nil {
			h.Close()
		}
	}()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-ended
	return nil
}
