package diff_test

import (
	"bufio"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// rawServer answers the n-th request with its n-th reply, and further requests with the last one. It records the
// requests byte by byte.
type rawServer struct {
	port int32

	mu       sync.Mutex // guards all below
	replies  []reply
	requests []string
}

// reply is a response as it goes over the wire.
type reply struct {
	// Text is the response. The connection is closed after it.
	Text string
	// HangUp closes the connection without reading a request.
	HangUp bool
	// KeepOpen leaves the connection open until the client closes it.
	KeepOpen bool
}

// newRawServer serves plain text, or TLS with an untrusted certificate.
func newRawServer(t *testing.T, secure bool, replies ...reply) *rawServer {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{port: int32(listener.Addr().(*net.TCPAddr).Port), replies: replies}
	if secure {
		listener = tls.NewListener(listener, selfSigned())
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			served.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		served.Wait()
	})
	return s
}

// selfSigned returns the configuration of a server with an untrusted certificate.
func selfSigned() *tls.Config {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	return &tls.Config{Certificates: server.TLS.Certificates, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
}

func (s *rawServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	s.mu.Lock()
	r := s.replies[min(len(s.requests), len(s.replies)-1)]
	s.mu.Unlock()
	if r.HangUp {
		s.record("connection")
		return
	}
	head := readRequestHead(conn)
	if head == "" {
		return
	}
	s.record(head)
	_, _ = io.WriteString(conn, r.Text)
	if r.KeepOpen {
		_, _ = io.Copy(io.Discard, conn)
	}
}

func (s *rawServer) record(head string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, head)
}

// readRequestHead reads the request line and the headers and returns them with sorted headers, whose order has no
// meaning.
func readRequestHead(conn io.Reader) string {
	reader := bufio.NewReader(conn)
	first, err := reader.ReadString('\n')
	if err != nil {
		return ""
	}
	var headers []string
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return ""
		}
		if line == "\r\n" {
			break
		}
		headers = append(headers, normalizeUserAgent(line))
	}
	slices.Sort(headers)
	return fmt.Sprintf("%q", first+strings.Join(headers, ""))
}

// serveWith sets the replies, runs check, and returns its result and the requests.
func (s *rawServer) serveWith(replies []reply, check func() checkResult) (checkResult, []string) {
	s.mu.Lock()
	s.replies, s.requests = replies, nil
	s.mu.Unlock()
	result := check()
	s.mu.Lock()
	defer s.mu.Unlock()
	return result, slices.Clone(s.requests)
}

// generateHTTPCase generates a probe as a user might write it, and a server as a user might run it.
func generateHTTPCase(g *generator) httpCase {
	c := httpCase{Get: v1.HTTPGetAction{
		Path: oneOf(g, "", "/", "healthz", "/a?b=c", "/a?b=%20#frag", "?q", "#f", "/%zz", "/a b", "//user:pw@x/y", "/é", "*",
			"/a/../b//c", "http://other.example/x", "mailto:x", "http:", ":80", "/a\x7f", "/%2F", "/a;b", "a:b", "/a?b c"),
		Host:   oneOf(g, "", "", "", "localhost", "127.0.0.1", "LOCALHOST", "no such host"),
		Scheme: oneOf(g, "", v1.URISchemeHTTP, v1.URISchemeHTTP, v1.URISchemeHTTPS, "http", "FTP"),
	}}
	switch g.IntN(20) {
	case 0:
		c.Get.Port = intstr.FromString(oneOf(g, "web", "other", "80x", "-1", "99999999999", "65536"))
	case 1:
		c.Get.Port = intstr.FromInt32(oneOf(g, int32(-1), 65536, 1<<30))
	}
	for range g.IntN(4) {
		c.Get.HTTPHeaders = append(c.Get.HTTPHeaders, v1.HTTPHeader{Name: generateHeaderName(g), Value: generateHeaderValue(g)})
	}
	for range 1 + g.IntN(3) {
		c.Replies = append(c.Replies, generateReply(g))
	}
	return c
}

func generateHeaderName(g *generator) string {
	return oneOf(g, "Host", "host", "User-Agent", "user-agent", "Accept", "accept", "X-A", "x-a", "Cookie", "Authorization",
		"Connection", "Content-Length", "Transfer-Encoding", "Trailer", "Expect", "Accept-Encoding", "Range", "Referer", "Te", "Bad Name", "")
}

func generateHeaderValue(g *generator) string {
	return oneOf(g, "", "", "a", "text/html", "shop.example", "shop.example:8080", "close", "keep-alive", "ü", " padded ", "a, b", "5",
		"chunked", "two\r\nlines", "nul\x00", "tab\t", "100-continue", "[::1]:80", "a b/c")
}

func generateReply(g *generator) reply {
	if g.chance(5) {
		return reply{HangUp: g.chance(50), Text: oneOf(g, "", "garbage\r\n\r\n", "HTTP/1.1 ")}
	}
	code := oneOf(g, 200, 200, 204, 301, 302, 302, 303, 304, 307, 308, 400, 404, 500, 503, 100+g.IntN(500))
	body := oneOf(g, "", "body", "\xff\xfe", "\x1f\x8b\x08", strings.Repeat("x", 10<<10-1+g.IntN(3)))
	var headers []string
	if g.chance(60) {
		headers = append(headers, "Location: "+oneOf(g, "/", "/x?y=z#f", "x", "?q", "//127.0.0.1:1/", "http://elsewhere.example/", "http://",
			"HTTP://localhost/", "https://127.0.0.1:1/", "/%zz", "http://[::1", "ftp://127.0.0.1/", "/a b", "mailto:x"))
	}
	if g.chance(10) {
		headers = append(headers, oneOf(g, "Set-Cookie: a=b", "Connection: keep-alive", "Content-Encoding: gzip", "Trailer: X"))
	}
	r := httpReply(code, body, headers...)
	switch g.IntN(12) {
	case 0:
		r.Text = strings.Replace(r.Text, "HTTP/1.1", "HTTP/1.0", 1)
	case 1:
		r.Text = r.Text[:g.IntN(len(r.Text))]
	case 2:
		r.Text = strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", g.IntN(9)) + r.Text
	case 3:
		r.Text = strings.Replace(r.Text, "Content-Length", "X-Length", 1)
	}
	return r
}

var (
	checkSeed  = flag.Uint64("check.seed", 0, "seed of the first case for comparing checks; 0 for a random one")
	checkCases = flag.Int("check.cases", 800, "number of cases per comparison of checks")
)

// rawServers is one server per scheme.
type rawServers struct{ plain, tls *rawServer }

func newRawServers(t *testing.T) rawServers {
	return rawServers{newRawServer(t, false), newRawServer(t, true)}
}

// httpCase is one HTTP probe and the server's replies.
type httpCase struct {
	Get     v1.HTTPGetAction
	Replies []reply
	Timeout int32
}

// httpOutcome is the result of a probe and the requests that the server saw.
type httpOutcome struct {
	Result   checkResult
	Requests []string
}

// check runs the probe on both sides.
func (s rawServers) check(t *testing.T, hc httpCase) (kubelet, herald httpOutcome) {
	t.Helper()
	server := s.plain
	if strings.EqualFold(string(hc.Get.Scheme), "https") {
		server = s.tls
	}
	get := hc.Get
	if get.Port == (intstr.IntOrString{}) {
		get.Port = intstr.FromInt32(server.port)
	}
	check := &checkCase{
		Probe:     v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &get}, TimeoutSeconds: hc.Timeout},
		Container: v1.Container{Name: "app", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: server.port}}},
	}
	kubelet.Result, kubelet.Requests = server.serveWith(hc.Replies, check.checkKubelet)
	herald.Result, herald.Requests = server.serveWith(hc.Replies, func() checkResult { return check.checkHerald(t) })
	return kubelet, herald
}

// compare returns how the two sides differ. Connection failures have different messages.
func (s rawServers) compare(t *testing.T, c httpCase) string {
	t.Helper()
	theirs, ours := s.check(t, c)
	for _, result := range []*checkResult{&theirs.Result, &ours.Result} {
		if result.Outcome == outcomeUnknown || result.Outcome == outcomeFailure && !strings.HasPrefix(result.Message, "HTTP probe failed with statuscode") {
			result.Message = ""
		}
	}
	return cmp.Diff(theirs, ours)
}

// httpReply returns a well-formed response.
func httpReply(code int, body string, headers ...string) reply {
	return reply{Text: fmt.Sprintf("HTTP/1.1 %03d %s\r\n%sContent-Length: %d\r\n\r\n%s",
		code, http.StatusText(code), joinHeaders(headers...), len(body), body)}
}

func joinHeaders(headers ...string) string {
	var all strings.Builder
	for _, h := range headers {
		all.WriteString(h + "\r\n")
	}
	return all.String()
}

func TestPRB25_SameStatusCodes(t *testing.T) {
	servers := newRawServers(t)
	for code := 100; code < 600; code++ {
		for _, headers := range [][]string{nil, {"Location: /there"}, {"Location: http://elsewhere.example/"}} {
			replies := []reply{httpReply(code, "body", headers...), httpReply(200, "there")}
			if mismatch := servers.compare(t, httpCase{Replies: replies}); mismatch != "" {
				t.Errorf("%d %q: kubelet (-), Herald (+):\n%s", code, headers, mismatch)
			}
		}
	}
}

// unusualReplies are responses at the edges of the protocol.
var unusualReplies = map[string][]reply{
	"empty":                          {{}},
	"hang-up":                        {{HangUp: true}},
	"not HTTP":                       {{Text: "SSH-2.0-OpenSSH_9.9\r\n"}},
	"partial status line":            {{Text: "HTTP/1.1 20"}},
	"partial headers":                {{Text: "HTTP/1.1 200 OK\r\nX: "}},
	"truncated body":                 {{Text: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"}},
	"truncated body of a failure":    {{Text: "HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\nx"}},
	"truncated chunk":                {{Text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nx"}},
	"invalid chunk":                  {{Text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx"}},
	"truncated after the read limit": {{Text: "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + strings.Repeat("x", 11<<10)}},
	"body at the read limit":         {httpReply(302, strings.Repeat("x", 10<<10))},
	"body above the read limit":      {httpReply(302, strings.Repeat("x", 10<<10+1))},
	"body until close":               {{Text: "HTTP/1.0 200 OK\r\n\r\n" + strings.Repeat("x", 100<<10)}},
	"gzip":                           {httpReply(302, "\x1f\x8b\x08\x00garbage", "Content-Encoding: gzip")},
	"invalid UTF-8":                  {httpReply(302, "\xff\xfe")},
	"two Content-Lengths":            {{Text: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy"}},
	"Content-Length and chunks":      {{Text: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}},
	"invalid Content-Length":         {{Text: "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nxy"}},
	"invalid status code":            {{Text: "HTTP/1.1 2000 OK\r\n\r\n"}},
	"status code below 100":          {{Text: "HTTP/1.1 050 What\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"}},
	"invalid version":                {{Text: "HTTP/9 200 OK\r\n\r\n"}},
	"no reason phrase":               {{Text: "HTTP/1.1 200\r\n\r\n"}},
	"line feeds only":                {{Text: "HTTP/1.1 200 OK\nContent-Length: 0\n\n"}},
	"interim responses":              {{Text: strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 20) + "HTTP/1.1 204 No\r\n\r\n"}},
	"only interim responses":         {{Text: "HTTP/1.1 103 Early Hints\r\n\r\n"}},
	"switching protocols":            {{Text: "HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nxyz"}},
	"redirect without Location":      {httpReply(302, "")},
	"redirect to an invalid URL":     {httpReply(302, "", "Location: http://[::1")},
	"endless redirect":               {httpReply(302, "", "Location: /")},
	"ten redirects":                  append(repeatReply(9, httpReply(307, "", "Location: /x")), httpReply(200, "")),
	"eleven redirects":               append(repeatReply(10, httpReply(307, "", "Location: /x")), httpReply(200, "")),
	"redirect to a file":             {httpReply(302, "", "Location: file:///etc/passwd")},
	"redirect to the same host":      {httpReply(302, "", "Location: //127.0.0.1/x"), httpReply(200, "")},
	"redirect to localhost":          {httpReply(302, "", "Location: http://localhost/x")},
	"redirect to a closed port":      {httpReply(302, "", "Location: http://127.0.0.1:1/x")},
	"two Locations":                  {httpReply(302, "", "Location: /a", "Location: /b"), httpReply(200, "")},
	"redirect with a cookie":         {httpReply(302, "", "Location: /a", "Set-Cookie: a=b"), httpReply(200, "")},
}

func repeatReply(n int, r reply) []reply {
	all := make([]reply, n)
	for i := range all {
		all[i] = r
	}
	return all
}

func TestPRB25_SameUnusualReplies(t *testing.T) {
	servers := newRawServers(t)
	for name, replies := range unusualReplies {
		for _, scheme := range []v1.URIScheme{v1.URISchemeHTTP, v1.URISchemeHTTPS} {
			c := httpCase{Get: v1.HTTPGetAction{Scheme: scheme}, Replies: replies}
			if mismatch := servers.compare(t, c); mismatch != "" {
				t.Errorf("%s, %s: kubelet (-), Herald (+):\n%s", scheme, name, mismatch)
			}
		}
	}
}

func TestPRB24_SameRequests(t *testing.T) {
	first := *checkSeed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	servers := newRawServers(t)
	for seed := first; seed < first+uint64(*checkCases); seed++ {
		c := generateHTTPCase(newGenerator(seed))
		if servers.compare(t, c) == "" {
			continue
		}
		c = shrink(c, func(smaller httpCase) bool { return len(smaller.Replies) > 0 && servers.compare(t, smaller) != "" })
		t.Fatalf("reproduce with: go test ./diff -run '^%s$' -check.cases=1 -check.seed=%d\n%+v\nkubelet (-), Herald (+):\n%s",
			t.Name(), seed, c, servers.compare(t, c))
	}
}

func TestPRB24_SameHTTP2(t *testing.T) {
	var requests []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, normalizeUserAgent(fmt.Sprint(r.Proto, r.Method, r.RequestURI, r.Host, r.Header)))
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/there?x=y", http.StatusFound)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	c := &checkCase{Probe: v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{
		Scheme: v1.URISchemeHTTPS, Port: intstr.FromInt(server.Listener.Addr().(*net.TCPAddr).Port),
		HTTPHeaders: []v1.HTTPHeader{{Name: "Host", Value: "shop.example"}, {Name: "X-A", Value: "1"}, {Name: "x-a", Value: "2"}},
	}}}}
	theirs, ours := c.checkKubelet(), c.checkHerald(t)
	if theirs != ours || ours.Outcome != outcomeSuccess {
		t.Fatalf("got kubelet %+v, Herald %+v; want success on both sides", theirs, ours)
	}
	if len(requests) != 4 || !strings.HasPrefix(requests[0], "HTTP/2.0") {
		t.Fatalf("got requests %q, want 4 over HTTP/2.0", requests)
	}
	if diff := cmp.Diff(requests[:2], requests[2:]); diff != "" {
		t.Fatal(diff)
	}
}
