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

	"github.com/heraldnode/herald/internal/permission/permissiontest"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/source/manifest"
)

// testServer is a server whose handler can be changed.
type testServer struct {
	*httptest.Server

	mu       sync.Mutex // guards all below
	handler  http.HandlerFunc
	requests int
}

func newTestServer(t *testing.T, start func(*httptest.Server), handler http.HandlerFunc) *testServer {
	t.Helper()
	s := &testServer{handler: handler}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	start(s.Server)
	t.Cleanup(s.Close)
	return s
}

func (s *testServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests++
	handler := s.handler
	s.mu.Unlock()
	handler(w, r)
}

func (s *testServer) set(handler http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = handler
}

var startPlain, startTLS = (*httptest.Server).Start, (*httptest.Server).StartTLS

func body(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { send(w, text) }
}

// send writes a body. It ignores the error of a client that disconnects.
func send(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func newHTTP(t *testing.T, url string, mutate ...func(*source.HTTPConfig)) *source.HTTP {
	t.Helper()
	config := source.HTTPConfig{URL: url, NodeName: node, Period: 5 * time.Millisecond, Decode: decodeLines}
	config.AllowInsecure = strings.HasPrefix(url, "http://127.0.0.1:") // test servers have no privileged port
	for _, change := range mutate {
		change(&config)
	}
	h, err := source.NewHTTP(config)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestCFG25_CFG29_Headers(t *testing.T) {
	server := newTestServer(t, startPlain, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.Host != "pods.example" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		send(w, "web 1\ndb 1")
	})
	sink := startSource(t, newHTTP(t, server.URL+"/pods?token=secret", func(c *source.HTTPConfig) {
		c.Header = http.Header{"Authorization": {"Bearer secret"}, "Host": {"pods.example"}}
	}))
	sink.waitPods(t, "db-1 web-1")
	server.set(body("web 2"))
	sink.waitPods(t, "web-2")
	server.set(body("none"))
	sink.waitPods(t, "")
}

// serverFault is an invalid response and the problem that it causes.
type serverFault struct {
	handler http.HandlerFunc
	want    string
}

func serverFaults(otherURL string) map[string]serverFault {
	return map[string]serverFault{
		"error":   {status(http.StatusInternalServerError), "the server responded with 500 Internal Server Error"},
		"no body": {status(http.StatusOK), "to remove all pods, serve a list with `items: []`"},
		"blanks":  {body(" \n"), "to remove all pods, serve a list with `items: []`"},
		"garbage": {body("<html>"), ":1: metadata: want a name and a version"},
		"unsolicited not modified": {
			status(http.StatusNotModified), "the server responded with 304 Not Modified",
		},
		"flood": {func(w http.ResponseWriter, _ *http.Request) {
			chunk := bytes.Repeat([]byte("x"), 64<<10)
			for range 10 << 30 / len(chunk) {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "the response is larger than 1048576 bytes, the maximum size of a manifest"},
		"announced flood": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10737418240")
			w.WriteHeader(http.StatusOK)
		}, "the response is larger than 1048576 bytes, the maximum size of a manifest"},
		"trickle": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				send(w, "x")
				w.(http.Flusher).Flush()
			}
		}, "cannot be read completely: context deadline exceeded"},
		"no headers": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded"},
		"half a body": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			send(w, "web 2")
		}, "cannot be read completely: unexpected EOF"},
		"redirect to another host": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, otherURL+"/?leak=1", http.StatusFound)
		}, "rejected: only the configured server is trusted"},
		"redirect to another scheme": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://"+r.Host+"/", http.StatusFound)
		}, "rejected: only the configured server is trusted"},
	}
}

func TestF21_BUG21_ServerFaults(t *testing.T) {
	other := newTestServer(t, startPlain, body("other 1"))
	for name, test := range serverFaults(other.URL) {
		t.Run(name, func(t *testing.T) {
			server := newTestServer(t, startPlain, body("web 1"))
			sink := startSource(t, newHTTP(t, server.URL, func(c *source.HTTPConfig) { c.Timeout = 500 * time.Millisecond }))
			sink.waitPods(t, "web-1")
			server.set(test.handler)
			sink.waitProblem(t, test.want)
			server.set(body("web 1"))
			sink.waitNoProblem(t) // the last valid body resolves the problem
			server.set(body("web 2"))
			sink.waitPods(t, "web-2")
			if diff := cmp.Diff([]string{"web-1", "web-2"}, sink.history); diff != "" {
				t.Fatalf("sets (-want +got):\n%s", diff)
			}
		})
	}
	if other.requests != 0 {
		t.Fatalf("other host: got %d requests, want none", other.requests)
	}
}

func TestCFG26_ServerDown(t *testing.T) {
	server := newTestServer(t, startPlain, body("web 1"))
	sink := startSource(t, newHTTP(t, server.URL+"/p?token=secret"))
	sink.waitPods(t, "web-1")
	server.Close()
	sink.waitProblem(t, "connection refused")
	_, pods, problems := sink.state()
	if pods != "web-1" || strings.Contains(problems, "secret") || !strings.HasPrefix(problems, server.URL+"/p: ") {
		t.Fatalf("got pods %q, problems %q; want web-1 and no secret", pods, problems)
	}
}

// tcpProxy forwards connections to a server. It can drop the data of old connections without closing them.
type tcpProxy struct {
	net.Listener
	to        string
	deadUntil atomic.Int64 // number of the last connection whose data is dropped
}

func newTCPProxy(t *testing.T, to string) *tcpProxy {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tcpProxy{Listener: listener, to: to}
	var running sync.WaitGroup
	running.Go(func() { p.accept(ctx, &running) })
	t.Cleanup(func() {
		cancel()
		listener.Close()
		running.Wait()
	})
	return p
}

func (p *tcpProxy) accept(ctx context.Context, running *sync.WaitGroup) {
	for number := int64(1); ; number++ {
		client, err := p.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.to)
		if err != nil {
			client.Close()
			continue
		}
		context.AfterFunc(ctx, func() { client.Close() })
		running.Go(func() { p.forward(number, client, server) })
		running.Go(func() { p.forward(number, server, client) })
	}
}

func (p *tcpProxy) forward(number int64, from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if number > p.deadUntil.Load() {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
}

func TestF3_DeadConnection(t *testing.T) {
	server := newTestServer(t, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }, body("web 1"))
	proxy := newTCPProxy(t, server.Listener.Addr().String())
	sink := startSource(t, newHTTP(t, "https://"+proxy.Addr().String(), func(c *source.HTTPConfig) {
		c.RootCAs, c.Timeout = x509.NewCertPool(), time.Second
		c.RootCAs.AddCert(server.Certificate())
	}))
	sink.waitPods(t, "web-1")
	server.set(body("web 2"))
	proxy.deadUntil.Store(1)
	sink.waitPods(t, "web-2")
}

func TestCFG28_UnchangedBody(t *testing.T) {
	server := newTestServer(t, startPlain, body("web 1"))
	sink := startSource(t, newHTTP(t, server.URL))
	sink.waitReports(t, 5)
	if sets, _, _ := sink.state(); sets != 1 {
		t.Fatalf("got %d sets, want 1", sets)
	}
}

func TestCFG30_InvalidFirstBody(t *testing.T) {
	server := newTestServer(t, startPlain, body("garbage"))
	sink := startSource(t, newHTTP(t, server.URL))
	sink.waitProblem(t, "want a name and a version")
	if sets, _, _ := sink.state(); sets != 0 {
		t.Fatal("got a set, want none")
	}
	server.set(body("none"))
	sink.waitPods(t, "")
	sink.waitNoProblem(t)
}

func TestBUG21_Validators(t *testing.T) {
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
	server := newTestServer(t, startPlain, tagged(`"1"`, "web 1"))
	sink := startSource(t, newHTTP(t, server.URL))
	sink.waitPods(t, "web-1")
	server.set(tagged(`"bad"`, "garbage"))
	sink.waitProblem(t, "want a name")
	server.set(tagged(`"1"`, "neversent"))
	sink.waitNoProblem(t)
	server.set(tagged(`"2"`, "web 2"))
	sink.waitPods(t, "web-2")
	const monday = "Mon, 02 Jan 2006 15:04:05 GMT"
	server.set(dated(monday, "web 3"))
	sink.waitPods(t, "web-3")
	server.set(status(http.StatusTeapot))
	sink.waitProblem(t, "418")
	server.set(dated(monday, "neversent"))
	sink.waitNoProblem(t)
}

func TestHTTP_RedirectWithinServer(t *testing.T) {
	server := newTestServer(t, startPlain, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/old" {
			http.Redirect(w, r, "/new", http.StatusMovedPermanently)
			return
		}
		send(w, "web 1")
	})
	startSource(t, newHTTP(t, server.URL+"/old")).waitPods(t, "web-1")
}

func TestHTTP_RedirectLimit(t *testing.T) {
	var tooLong atomic.Bool
	server := newTestServer(t, startPlain, func(w http.ResponseWriter, r *http.Request) {
		if strings.Count(r.URL.Path, "/again") > 5 {
			tooLong.Store(true)
		}
		http.Redirect(w, r, r.URL.Path+"/again", http.StatusFound)
	})
	startSource(t, newHTTP(t, server.URL+"/pods")).waitProblem(t, "more than 5 redirects")
	if tooLong.Load() {
		t.Fatal("got more than 5 redirects, want at most 5")
	}
}

func TestHTTP_ServerCertificate(t *testing.T) {
	server := newTestServer(t, startTLS, body("web 1"))
	untrusting := startSource(t, newHTTP(t, server.URL))
	untrusting.waitProblem(t, "certificate")
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	startSource(t, newHTTP(t, server.URL, func(c *source.HTTPConfig) { c.RootCAs = pool })).waitPods(t, "web-1")

	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "ca.pem")
	sink := startSource(t, newHTTP(t, server.URL, func(c *source.HTTPConfig) { c.CAFile = file }))
	sink.waitProblem(t, "cannot be read without certificates: open "+file)
	write(t, file, "no certificate")
	sink.waitProblem(t, file+" contains no PEM certificate")
	write(t, file, string(authority))
	sink.waitPods(t, "web-1") // without restart
	if sets, _, _ := untrusting.state(); sets != 0 {
		t.Fatal("unknown CA: got a set, want none")
	}
}

func TestHTTP_ClientCertificate(t *testing.T) {
	requireCert := func(s *httptest.Server) {
		s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
		s.StartTLS()
	}
	server := newTestServer(t, requireCert, func(w http.ResponseWriter, r *http.Request) {
		send(w, fmt.Sprintf("web %d", len(r.TLS.PeerCertificates)))
	})
	cert, key := writeKeyPair(t, t.TempDir())
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	sink := startSource(t, newHTTP(t, server.URL, func(c *source.HTTPConfig) {
		c.RootCAs, c.CertFile, c.KeyFile = pool, cert, key
	}))
	sink.waitPods(t, "web-1")
	if err := os.WriteFile(key, []byte("not a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	sink.waitProblem(t, "cannot be read without certificates: "+cert+" and "+key)
}

func TestHTTP_IgnoresProxyEnvironment(t *testing.T) {
	sink := startSource(t, newHTTP(t, "http://192.0.2.1/", func(c *source.HTTPConfig) { // TEST-NET-1
		c.AllowInsecure, c.Timeout = true, 100*time.Millisecond
	}))
	sink.waitProblem(t, "cannot be read")
	if _, _, problems := sink.state(); strings.Contains(problems, "127.0.0.1") {
		t.Fatalf("problems: got %q, want no use of the proxy", problems)
	}
}

func TestHTTP_StopsDuringRequest(t *testing.T) {
	requested := make(chan struct{}, 10)
	server := newTestServer(t, startPlain, func(_ http.ResponseWriter, r *http.Request) {
		requested <- struct{}{}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	sink := newFakeSink()
	go func() { done <- newHTTP(t, server.URL).Run(ctx, sink) }()
	<-requested
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, _, problems := sink.state(); problems != "" {
		t.Fatalf("problems: got %q, want none", problems)
	}
}

func TestHTTP_MaximumBody(t *testing.T) {
	text := "web 1" + strings.Repeat("\n", manifest.MaxBytes-5)
	startSource(t, newHTTP(t, newTestServer(t, startPlain, body(text)).URL)).waitPods(t, "web-1")
}

func TestCFG27_CFG29_RealList(t *testing.T) {
	item := func(name string) string {
		return "- metadata: {name: " + name + "}\n  spec: {containers: [{name: c, image: registry.example/x:1}]}\n"
	}
	const head = "apiVersion: v1\nkind: PodList\nitems:"
	server := newTestServer(t, startPlain, body(head+"\n"+item("web")+item("db")))
	sink := startSource(t, newHTTP(t, server.URL, func(c *source.HTTPConfig) { c.Decode = nil }))
	sink.wait(t, "two pods", func() bool { return len(sink.pods) == 2 })
	server.set(body(""))
	sink.waitProblem(t, "items: []")
	server.set(body(head + "\n" + item("web") + "- {}\n")) // one invalid item rejects the whole list
	sink.waitProblem(t, "name")
	if sets, _, _ := sink.state(); sets != 1 {
		t.Fatalf("got %d sets, want 1", sets)
	}
	server.set(body(head + " []\n"))
	sink.waitPods(t, "")
}

func TestHTTPConfig_Validation(t *testing.T) {
	tests := map[string]struct {
		mutate func(*source.HTTPConfig)
		want   string // without the prefix; "" if the configuration is valid
	}{
		"no URL":           {func(c *source.HTTPConfig) { c.URL = "" }, "URL is required"},
		"invalid URL":      {func(c *source.HTTPConfig) { c.URL = "http://u:secret@h:x/" }, "URL must be a valid URL"},
		"no host":          {func(c *source.HTTPConfig) { c.URL = "https:///x" }, "URL must have a host"},
		"other scheme":     {func(c *source.HTTPConfig) { c.URL = "ftp://h/" }, `URL must be https, not "ftp"`},
		"http":             {func(c *source.HTTPConfig) { c.URL = "http://u:secret@h/x?y=secret" }, "URL must be https: an attacker who can modify responses of http://h/x in transit could gain root"},
		"http by address":  {func(c *source.HTTPConfig) { c.URL = "http://127.0.0.1.example/" }, "URL must be https: an attacker who can modify responses of http://127.0.0.1.example/ in transit could gain root"},
		"no node name":     {func(c *source.HTTPConfig) { c.NodeName = "" }, "NodeName is required"},
		"negative period":  {func(c *source.HTTPConfig) { c.Period = -1 }, "Period must not be negative"},
		"negative timeout": {func(c *source.HTTPConfig) { c.Timeout = -1 }, "Timeout must not be negative"},
		"two CA pools": {
			func(c *source.HTTPConfig) { c.CAFile, c.RootCAs = "x", x509.NewCertPool() },
			"CAFile must not be set with RootCAs",
		},
		"key without certificate": {
			func(c *source.HTTPConfig) { c.KeyFile = "x" }, "CertFile and KeyFile must be set together",
		},
		"unprivileged port": {
			func(c *source.HTTPConfig) { c.URL = "http://localhost:8080/x?y=secret" },
			"URL must be https, unix:///PATH or have a port below 1024: any local user can serve http://localhost:8080/x while its " +
				"server is down",
		},
		"unprivileged port by address": {
			func(c *source.HTTPConfig) { c.URL = "http://[::1]:1024/" },
			"URL must be https, unix:///PATH or have a port below 1024: any local user can serve http://[::1]:1024/ while its " +
				"server is down",
		},
		"relative socket": {func(c *source.HTTPConfig) { c.URL = "unix://run/x" }, "URL of a socket must have the form unix:///PATH"},
		"no socket": {
			func(c *source.HTTPConfig) { c.URL = "unix:///" },
			"URL of a socket must have the form unix:///PATH: must be the path of a socket, not of a directory",
		},
		"socket":           {func(c *source.HTTPConfig) { c.URL = "unix:///run/pods.sock" }, ""},
		"port of http":     {func(c *source.HTTPConfig) { c.URL = "http://localhost/" }, ""},
		"allowed any port": {func(c *source.HTTPConfig) { c.URL, c.AllowInsecure = "http://localhost:8080/", true }, ""},
		"localhost":        {func(c *source.HTTPConfig) { c.URL = "http://localhost:1/" }, ""},
		"IPv6 loopback":    {func(c *source.HTTPConfig) { c.URL = "http://[::1]:1/" }, ""},
		"allowed http":     {func(c *source.HTTPConfig) { c.URL, c.AllowInsecure = "http://h/", true }, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := source.HTTPConfig{URL: "https://h/", NodeName: node}
			test.mutate(&config)
			_, err := source.NewHTTP(config)
			if test.want == "" && err == nil {
				return
			}
			if err == nil || err.Error() != "source.HTTPConfig: "+test.want {
				t.Fatalf("got error %v, want %s", err, test.want)
			}
		})
	}
}

// TestHTTP_SocketListener reads manifests from a socket that the agent's user serves, and rejects a socket that another user
// serves in its place.
func TestHTTP_SocketListener(t *testing.T) {
	users := map[int]bool{os.Geteuid(): true}
	if os.Geteuid() == 0 {
		users[1234] = false // only root can listen as another user
	}
	for user, isTrusted := range users {
		listener, path := permissiontest.ListenAs(t, user)
		server := &http.Server{Handler: body("web 1")}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { server.Close() })
		sink := startSource(t, newHTTP(t, "unix://"+path))
		if isTrusted {
			sink.waitPods(t, "web-1")
			continue
		}
		sink.waitProblem(t, "is user 1234")
		if sets, _, _ := sink.state(); sets > 0 {
			t.Errorf("got %d sets of pods of another user, want none", sets)
		}
	}
}

func TestHTTP_UnsafeCertificates(t *testing.T) {
	server := newTestServer(t, startTLS, body("web 1"))
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o606); err != nil {
		t.Fatal(err)
	}
	sink := startSource(t, newHTTP(t, server.URL, func(c *source.HTTPConfig) { c.CAFile = file }))
	sink.waitProblem(t, file+" is world-writable (mode 0606), so any user could start pods (chmod o-w "+file+")")
	if sets, _, _ := sink.state(); sets > 0 {
		t.Errorf("got %d sets of pods, want none", sets)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	sink.waitPods(t, "web-1")
}
