package source_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/source/manifest"
)

// site is a server whose answer a test changes as it goes.
type site struct {
	*httptest.Server

	mu       sync.Mutex // guards all below
	answer   http.HandlerFunc
	requests int
}

func newSite(t *testing.T, start func(*httptest.Server), answer http.HandlerFunc) *site {
	t.Helper()
	s := &site{answer: answer}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	start(s.Server)
	t.Cleanup(s.Close)
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests++
	answer := s.answer
	s.mu.Unlock()
	answer(w, r)
}

func (s *site) set(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

var plain, secure = (*httptest.Server).Start, (*httptest.Server).StartTLS

func body(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { send(w, text) }
}

// send writes a body; a client that goes away meanwhile is no fault of the server.
func send(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func newHTTP(t *testing.T, url string, edits ...func(*source.HTTPConfig)) *source.HTTP {
	t.Helper()
	config := source.HTTPConfig{URL: url, NodeName: node, Period: 5 * time.Millisecond, Decode: decode}
	for _, edit := range edits {
		edit(&config)
	}
	h, err := source.NewHTTP(config)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestCFG25AndCFG29PodsAreReadWithTheConfiguredHeaders(t *testing.T) {
	site := newSite(t, plain, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.Host != "pods.example" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		send(w, "web 1\ndb 1")
	})
	sink := start(t, newHTTP(t, site.URL+"/pods?token=secret", func(c *source.HTTPConfig) {
		c.Header = http.Header{"Authorization": {"Bearer secret"}, "Host": {"pods.example"}}
	}))
	sink.waitPods(t, "db-1 web-1")
	site.set(body("web 2"))
	sink.waitPods(t, "web-2")
	site.set(body("none"))
	sink.waitPods(t, "")
}

// mishap is what a server can do wrong, and what is to be said about it.
type mishap struct {
	answer http.HandlerFunc
	want   string
}

func mishaps(elsewhere string) map[string]mishap {
	return map[string]mishap{
		"error":   {status(http.StatusInternalServerError), "the server answered 500 Internal Server Error"},
		"no body": {status(http.StatusOK), "a list with `items: []` is what removes them all"},
		"blanks":  {body(" \n"), "a list with `items: []` is what removes them all"},
		"garbage": {body("<html>"), ":1: metadata: want a name and a version"},
		"not modified, though nobody asked": {
			status(http.StatusNotModified), "the server answered 304 Not Modified",
		},
		"a flood": {func(w http.ResponseWriter, _ *http.Request) {
			chunk := bytes.Repeat([]byte("x"), 64<<10)
			for range 10 << 30 / len(chunk) {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "the server sends more than the 1048576 bytes that a manifest may have"},
		"a flood that is announced": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10737418240")
			w.WriteHeader(http.StatusOK)
		}, "the server sends more than the 1048576 bytes that a manifest may have"},
		"a trickle": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				send(w, "x")
				w.(http.Flusher).Flush()
			}
		}, "cannot be read to its end: context deadline exceeded"},
		"a trickle of headers": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded"},
		"half a body": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			send(w, "web 2")
		}, "cannot be read to its end: unexpected EOF"},
		"redirect to another host": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere+"/?leak=1", http.StatusFound)
		}, "refused: only the configured server is trusted"},
		"redirect to another scheme": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://"+r.Host+"/", http.StatusFound)
		}, "refused: only the configured server is trusted"},
	}
}

func TestF21AndBUG21WhateverTheServerDoesTheLastGoodSetStays(t *testing.T) {
	elsewhere := newSite(t, plain, body("evil 1"))
	for name, test := range mishaps(elsewhere.URL) {
		t.Run(name, func(t *testing.T) {
			site := newSite(t, plain, body("web 1"))
			sink := start(t, newHTTP(t, site.URL, func(c *source.HTTPConfig) { c.Timeout = 500 * time.Millisecond }))
			sink.waitPods(t, "web-1")
			site.set(test.answer)
			sink.waitProblem(t, test.want)
			site.set(body("web 1"))
			sink.waitNoProblem(t) // the same content after a bad one counts as good again
			site.set(body("web 2"))
			sink.waitPods(t, "web-2")
			if diff := cmp.Diff([]string{"web-1", "web-2"}, sink.history); diff != "" {
				t.Fatalf("sets (-want +got):\n%s", diff)
			}
		})
	}
	if elsewhere.requests != 0 {
		t.Fatal("another host was asked")
	}
}

func TestCFG26AServerThatIsDownKeepsItsPods(t *testing.T) {
	site := newSite(t, plain, body("web 1"))
	sink := start(t, newHTTP(t, site.URL+"/p?token=secret"))
	sink.waitPods(t, "web-1")
	site.Close()
	sink.waitProblem(t, "connection refused")
	_, pods, problems := sink.told()
	if pods != "web-1" || strings.Contains(problems, "secret") || !strings.HasPrefix(problems, site.URL+"/p: ") {
		t.Fatalf("pods %q, problems %q", pods, problems)
	}
}

// wire is a connection's way to a server, which can be cut so that neither end is told of it.
type wire struct {
	net.Listener
	to  string
	cut atomic.Int64 // connections up to this one lead nowhere
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: listener, to: to}
	var running sync.WaitGroup
	running.Go(func() { w.accept(ctx, &running) })
	t.Cleanup(func() {
		end()
		listener.Close()
		running.Wait()
	})
	return w
}

func (w *wire) accept(ctx context.Context, running *sync.WaitGroup) {
	for number := int64(1); ; number++ {
		near, err := w.Accept()
		if err != nil {
			return
		}
		far, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.to)
		if err != nil {
			near.Close()
			continue
		}
		context.AfterFunc(ctx, func() { near.Close() })
		running.Go(func() { w.carry(number, near, far) })
		running.Go(func() { w.carry(number, far, near) })
	}
}

func (w *wire) carry(number int64, from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if number > w.cut.Load() {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
}

func TestF3AConnectionThatLeadsNowhereIsNotKept(t *testing.T) {
	site := newSite(t, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }, body("web 1"))
	wire := newWire(t, site.Listener.Addr().String())
	sink := start(t, newHTTP(t, "https://"+wire.Addr().String(), func(c *source.HTTPConfig) {
		c.RootCAs, c.Timeout = x509.NewCertPool(), time.Second
		c.RootCAs.AddCert(site.Certificate())
	}))
	sink.waitPods(t, "web-1")
	site.set(body("web 2"))
	wire.cut.Store(1)
	sink.waitPods(t, "web-2")
}

func TestCFG28AnUnchangedBodyIsNoNewSet(t *testing.T) {
	site := newSite(t, plain, body("web 1"))
	sink := start(t, newHTTP(t, site.URL))
	sink.waitReports(t, 5)
	if sets, _, _ := sink.told(); sets != 1 {
		t.Fatalf("%d sets", sets)
	}
}

func TestCFG30ABadFirstPayloadSaysNothingUntilAGoodOneComes(t *testing.T) {
	site := newSite(t, plain, body("garbage"))
	sink := start(t, newHTTP(t, site.URL))
	sink.waitProblem(t, "want a name and a version")
	if sets, _, _ := sink.told(); sets != 0 {
		t.Fatal("a set was told")
	}
	site.set(body("none"))
	sink.waitPods(t, "")
	sink.waitNoProblem(t)
}

func TestBUG21ValidatorsAreThoseOfTheAppliedBody(t *testing.T) {
	tagged := func(tag, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", tag)
			if r.Header.Get("If-None-Match") == tag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			send(w, text)
		}
	}
	dated := func(date, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Last-Modified", date)
			if r.Header.Get("If-Modified-Since") == date {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			send(w, text)
		}
	}
	site := newSite(t, plain, tagged(`"1"`, "web 1"))
	sink := start(t, newHTTP(t, site.URL))
	sink.waitPods(t, "web-1")
	site.set(tagged(`"bad"`, "garbage"))
	sink.waitProblem(t, "want a name")
	site.set(tagged(`"1"`, "neversent"))
	sink.waitNoProblem(t)
	site.set(tagged(`"2"`, "web 2"))
	sink.waitPods(t, "web-2")
	const monday = "Mon, 02 Jan 2006 15:04:05 GMT"
	site.set(dated(monday, "web 3"))
	sink.waitPods(t, "web-3")
	site.set(status(http.StatusTeapot))
	sink.waitProblem(t, "418")
	site.set(dated(monday, "neversent"))
	sink.waitNoProblem(t)
}

func TestRedirectsWithinTheServerAreFollowed(t *testing.T) {
	site := newSite(t, plain, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/old" {
			http.Redirect(w, r, "/new", http.StatusMovedPermanently)
			return
		}
		send(w, "web 1")
	})
	start(t, newHTTP(t, site.URL+"/old")).waitPods(t, "web-1")
}

func TestRedirectsHaveAnEnd(t *testing.T) {
	var tooLong atomic.Bool
	site := newSite(t, plain, func(w http.ResponseWriter, r *http.Request) {
		if strings.Count(r.URL.Path, "/again") > 5 {
			tooLong.Store(true)
		}
		http.Redirect(w, r, r.URL.Path+"/again", http.StatusFound)
	})
	start(t, newHTTP(t, site.URL+"/pods")).waitProblem(t, "more than 5 redirects")
	if tooLong.Load() {
		t.Fatal("more than 5 redirects were followed")
	}
}

func TestTheServersCertificateMustBeVouchedFor(t *testing.T) {
	site := newSite(t, secure, body("web 1"))
	stranger := start(t, newHTTP(t, site.URL))
	stranger.waitProblem(t, "certificate")
	pool := x509.NewCertPool()
	pool.AddCert(site.Certificate())
	start(t, newHTTP(t, site.URL, func(c *source.HTTPConfig) { c.RootCAs = pool })).waitPods(t, "web-1")

	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: site.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "ca.pem")
	sink := start(t, newHTTP(t, site.URL, func(c *source.HTTPConfig) { c.CAFile = file }))
	sink.waitProblem(t, "cannot be read without its certificates: open "+file)
	write(t, file, "nothing")
	sink.waitProblem(t, file+" holds none in PEM")
	write(t, file, string(authority))
	sink.waitPods(t, "web-1") // without a restart
	if sets, _, _ := stranger.told(); sets != 0 {
		t.Fatal("a stranger was believed")
	}
}

func TestTheAgentShowsItsCertificate(t *testing.T) {
	asking := func(s *httptest.Server) {
		s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
		s.StartTLS()
	}
	site := newSite(t, asking, func(w http.ResponseWriter, r *http.Request) {
		send(w, fmt.Sprintf("web %d", len(r.TLS.PeerCertificates)))
	})
	cert, key := keyPair(t, t.TempDir())
	pool := x509.NewCertPool()
	pool.AddCert(site.Certificate())
	sink := start(t, newHTTP(t, site.URL, func(c *source.HTTPConfig) {
		c.RootCAs, c.CertFile, c.KeyFile = pool, cert, key
	}))
	sink.waitPods(t, "web-1")
	if err := os.WriteFile(key, []byte("not a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	sink.waitProblem(t, "cannot be read without its certificates: "+cert+" and "+key)
}

func TestNoProxyFromTheEnvironmentIsUsed(t *testing.T) {
	sink := start(t, newHTTP(t, "http://192.0.2.1/", func(c *source.HTTPConfig) { // nobody's address
		c.AllowInsecure, c.Timeout = true, 100*time.Millisecond
	}))
	sink.waitProblem(t, "cannot be read")
	if _, _, problems := sink.told(); strings.Contains(problems, "127.0.0.1") {
		t.Fatalf("the proxy was asked: %s", problems)
	}
}

func TestTheSourceEndsWhileTheServerHangs(t *testing.T) {
	asked := make(chan struct{}, 10)
	site := newSite(t, plain, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	sink := newRecorder()
	go func() { ended <- newHTTP(t, site.URL).Run(ctx, sink) }()
	<-asked
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, _, problems := sink.told(); problems != "" {
		t.Fatalf("the agent's end is reported as the server's fault: %s", problems)
	}
}

func TestTheHTTPSourceSaysWhichFieldOfItsConfigurationIsWrong(t *testing.T) {
	const suffix = " is plain http to another machine: use https, or set AllowInsecure"
	https := func(edit func(*source.HTTPConfig)) source.HTTPConfig {
		config := source.HTTPConfig{URL: "https://h/", NodeName: node}
		edit(&config)
		return config
	}
	tests := map[string]struct {
		config source.HTTPConfig
		want   string
	}{
		"no URL":           {source.HTTPConfig{}, "URL: required"},
		"no URL at all":    {source.HTTPConfig{URL: "http://u:secret@h:x/"}, "URL: not a URL"},
		"no host":          {source.HTTPConfig{URL: "https:///x"}, "URL: has no host"},
		"another scheme":   {source.HTTPConfig{URL: "ftp://h/"}, `URL: scheme "ftp": want https`},
		"plain":            {source.HTTPConfig{URL: "http://u:secret@h/x?y=secret"}, "URL: http://h/x" + suffix},
		"plain by address": {source.HTTPConfig{URL: "http://127.0.0.1.example/"}, "URL: http://127.0.0.1.example/" + suffix},
		"no node":          {https(func(c *source.HTTPConfig) { c.NodeName = "" }), "Node: required"},
		"negative period":  {https(func(c *source.HTTPConfig) { c.Period = -1 }), "Period: -1ns is negative"},
		"negative timeout": {https(func(c *source.HTTPConfig) { c.Timeout = -1 }), "Timeout: -1ns is negative"},
		"two authorities": {
			https(func(c *source.HTTPConfig) { c.CAFile, c.RootCAs = "x", x509.NewCertPool() }),
			"CAFile: not together with RootCAs",
		},
		"half a pair": {
			https(func(c *source.HTTPConfig) { c.KeyFile = "x" }), "CertFile and KeyFile: one is missing",
		},
		"localhost":        {source.HTTPConfig{URL: "http://localhost:1/", NodeName: node}, ""},
		"IPv6 loopback":    {source.HTTPConfig{URL: "http://[::1]:1/", NodeName: node}, ""},
		"plain if allowed": {source.HTTPConfig{URL: "http://h/", NodeName: node, AllowInsecure: true}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := source.NewHTTP(test.config)
			if test.want == "" && err == nil {
				return
			}
			if err == nil || err.Error() != "source.HTTPConfig."+test.want {
				t.Fatalf("error %v, want %s", err, test.want)
			}
		})
	}
}

func TestABodyOfExactlyTheLimitIsRead(t *testing.T) {
	text := "web 1" + strings.Repeat("\n", manifest.MaxBytes-5)
	start(t, newHTTP(t, newSite(t, plain, body(text)).URL)).waitPods(t, "web-1")
}
