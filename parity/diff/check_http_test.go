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

// site is a server that answers the first request with its first reply, the second with the second, and further ones with
// the last. It writes down what it is asked, byte by byte.
type site struct {
	port int32

	mu      sync.Mutex // guards all below
	replies []reply
	heads   []string
}

// reply is an answer as it goes over the wire.
type reply struct {
	// Text is the answer. Then the connection is closed.
	Text string
	// Deaf servers hang up without having read a request.
	Deaf bool
	// Silent servers do not hang up until the client does.
	Silent bool
}

// newSite serves plain text, or TLS with a certificate that nobody trusts.
func newSite(t *testing.T, secure bool, replies ...reply) *site {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{port: int32(listener.Addr().(*net.TCPAddr).Port), replies: replies}
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

// selfSigned is the configuration of a server with a certificate that nobody trusts.
func selfSigned() *tls.Config {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	return &tls.Config{Certificates: server.TLS.Certificates, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
}

func (s *site) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	s.mu.Lock()
	r := s.replies[min(len(s.heads), len(s.replies)-1)]
	s.mu.Unlock()
	if r.Deaf {
		s.note("a connection")
		return
	}
	head := headOf(conn)
	if head == "" {
		return
	}
	s.note(head)
	_, _ = io.WriteString(conn, r.Text)
	if r.Silent {
		_, _ = io.Copy(io.Discard, conn)
	}
}

func (s *site) note(head string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heads = append(s.heads, head)
}

// headOf reads a request's first line and its headers, and shows them in order: that of headers means nothing.
func headOf(conn io.Reader) string {
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
		headers = append(headers, sameAgent(line))
	}
	slices.Sort(headers)
	return fmt.Sprintf("%q", first+strings.Join(headers, ""))
}

// seen answers like that from now on, lets somebody ask, and returns what was asked.
func (s *site) seen(replies []reply, ask func() finding) (finding, []string) {
	s.mu.Lock()
	s.replies, s.heads = replies, nil
	s.mu.Unlock()
	found := ask()
	s.mu.Lock()
	defer s.mu.Unlock()
	return found, slices.Clone(s.heads)
}

// drawVisit draws a probe as somebody might write it, and a server as somebody might run it.
func drawVisit(d *drawer) visit {
	v := visit{Get: v1.HTTPGetAction{
		Path: oneOf(d, "", "/", "healthz", "/a?b=c", "/a?b=%20#frag", "?q", "#f", "/%zz", "/a b", "//user:pw@x/y", "/é", "*",
			"/a/../b//c", "http://other.example/x", "mailto:x", "http:", ":80", "/a\x7f", "/%2F", "/a;b", "a:b", "/a?b c"),
		Host:   oneOf(d, "", "", "", "localhost", "127.0.0.1", "LOCALHOST", "no such host"),
		Scheme: oneOf(d, "", v1.URISchemeHTTP, v1.URISchemeHTTP, v1.URISchemeHTTPS, "http", "FTP"),
	}}
	switch d.IntN(20) {
	case 0:
		v.Get.Port = intstr.FromString(oneOf(d, "web", "other", "80x", "-1", "99999999999", "65536"))
	case 1:
		v.Get.Port = intstr.FromInt32(oneOf(d, int32(-1), 65536, 1<<30))
	}
	for range d.IntN(4) {
		v.Get.HTTPHeaders = append(v.Get.HTTPHeaders, v1.HTTPHeader{Name: drawHeaderName(d), Value: drawHeaderValue(d)})
	}
	for range 1 + d.IntN(3) {
		v.Replies = append(v.Replies, drawReply(d))
	}
	return v
}

func drawHeaderName(d *drawer) string {
	return oneOf(d, "Host", "host", "User-Agent", "user-agent", "Accept", "accept", "X-A", "x-a", "Cookie", "Authorization",
		"Connection", "Content-Length", "Transfer-Encoding", "Trailer", "Expect", "Accept-Encoding", "Range", "Referer", "Te", "Bad Name", "")
}

func drawHeaderValue(d *drawer) string {
	return oneOf(d, "", "", "a", "text/html", "shop.example", "shop.example:8080", "close", "keep-alive", "ü", " padded ", "a, b", "5",
		"chunked", "two\r\nlines", "nul\x00", "tab\t", "100-continue", "[::1]:80", "a b/c")
}

func drawReply(d *drawer) reply {
	if d.chance(5) {
		return reply{Deaf: d.chance(50), Text: oneOf(d, "", "garbage\r\n\r\n", "HTTP/1.1 ")}
	}
	code := oneOf(d, 200, 200, 204, 301, 302, 302, 303, 304, 307, 308, 400, 404, 500, 503, 100+d.IntN(500))
	body := oneOf(d, "", "body", "\xff\xfe", "\x1f\x8b\x08", strings.Repeat("x", 10<<10-1+d.IntN(3)))
	var headers []string
	if d.chance(60) {
		headers = append(headers, "Location: "+oneOf(d, "/", "/x?y=z#f", "x", "?q", "//127.0.0.1:1/", "http://elsewhere.example/", "http://",
			"HTTP://localhost/", "https://127.0.0.1:1/", "/%zz", "http://[::1", "ftp://127.0.0.1/", "/a b", "mailto:x"))
	}
	if d.chance(10) {
		headers = append(headers, oneOf(d, "Set-Cookie: a=b", "Connection: keep-alive", "Content-Encoding: gzip", "Trailer: X"))
	}
	r := reasonable(code, body, headers...)
	switch d.IntN(12) {
	case 0:
		r.Text = strings.Replace(r.Text, "HTTP/1.1", "HTTP/1.0", 1)
	case 1:
		r.Text = r.Text[:d.IntN(len(r.Text))]
	case 2:
		r.Text = strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", d.IntN(9)) + r.Text
	case 3:
		r.Text = strings.Replace(r.Text, "Content-Length", "X-Length", 1)
	}
	return r
}

var (
	checkSeed  = flag.Uint64("check.seed", 0, "the first case that checks are compared on; 0: any")
	checkCases = flag.Int("check.cases", 800, "how many cases each comparison of checks has")
)

// sites is one server for each scheme.
type sites struct{ plain, secure *site }

func newSites(t *testing.T) sites { return sites{newSite(t, false), newSite(t, true)} }

// visit is one HTTP probe and what the server answers.
type visit struct {
	Get     v1.HTTPGetAction
	Replies []reply
	Timeout int32
}

// made is what each made of a visit: what it found, and what the server saw.
type made struct {
	Found finding
	Asked []string
}

// pay lets both pay the visit.
func (s sites) pay(t *testing.T, v visit) (kubelet, herald made) {
	t.Helper()
	asked := s.plain
	if strings.EqualFold(string(v.Get.Scheme), "https") {
		asked = s.secure
	}
	get := v.Get
	if get.Port == (intstr.IntOrString{}) {
		get.Port = intstr.FromInt32(asked.port)
	}
	c := &checked{
		Probe:     v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &get}, TimeoutSeconds: v.Timeout},
		Container: v1.Container{Name: "app", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: asked.port}}},
	}
	kubelet.Found, kubelet.Asked = asked.seen(v.Replies, c.kubelet)
	herald.Found, herald.Asked = asked.seen(v.Replies, func() finding { return c.herald(t) })
	return kubelet, herald
}

// compare says in what the two differ. Failures of the connection are told in other words.
func (s sites) compare(t *testing.T, v visit) string {
	t.Helper()
	theirs, ours := s.pay(t, v)
	for _, found := range []*finding{&theirs.Found, &ours.Found} {
		if found.Verdict == errs || found.Verdict == fails && !strings.HasPrefix(found.Message, "HTTP probe failed with statuscode") {
			found.Message = ""
		}
	}
	return cmp.Diff(theirs, ours)
}

// reasonable is an answer with that code and body.
func reasonable(code int, body string, headers ...string) reply {
	return reply{Text: fmt.Sprintf("HTTP/1.1 %03d %s\r\n%sContent-Length: %d\r\n\r\n%s",
		code, http.StatusText(code), lines(headers...), len(body), body)}
}

func lines(headers ...string) string {
	var all strings.Builder
	for _, h := range headers {
		all.WriteString(h + "\r\n")
	}
	return all.String()
}

func TestPRB25BothMakeTheSameOfEveryStatusCode(t *testing.T) {
	s := newSites(t)
	for code := 100; code < 600; code++ {
		for _, headers := range [][]string{nil, {"Location: /there"}, {"Location: http://elsewhere.example/"}} {
			answer := []reply{reasonable(code, "body", headers...), reasonable(200, "there")}
			if differs := s.compare(t, visit{Replies: answer}); differs != "" {
				t.Errorf("%d %q: kubelet (-), Herald (+):\n%s", code, headers, differs)
			}
		}
	}
}

// answers that are worth a case of their own.
var peculiar = map[string][]reply{
	"nothing":                         {{}},
	"hangs up":                        {{Deaf: true}},
	"no HTTP":                         {{Text: "SSH-2.0-OpenSSH_9.9\r\n"}},
	"half a status line":              {{Text: "HTTP/1.1 20"}},
	"half of the headers":             {{Text: "HTTP/1.1 200 OK\r\nX: "}},
	"a body that breaks off":          {{Text: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"}},
	"a failure's body that breaks":    {{Text: "HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\nx"}},
	"a chunk that breaks off":         {{Text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nx"}},
	"no chunk":                        {{Text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx"}},
	"breaks off after what is read":   {{Text: "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + strings.Repeat("x", 11<<10)}},
	"as much as is read":              {reasonable(302, strings.Repeat("x", 10<<10))},
	"one byte more":                   {reasonable(302, strings.Repeat("x", 10<<10+1))},
	"until the end":                   {{Text: "HTTP/1.0 200 OK\r\n\r\n" + strings.Repeat("x", 100<<10)}},
	"gzip":                            {reasonable(302, "\x1f\x8b\x08\x00garbage", "Content-Encoding: gzip")},
	"no characters":                   {reasonable(302, "\xff\xfe")},
	"two lengths":                     {{Text: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy"}},
	"a length and chunks":             {{Text: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}},
	"no length that is one":           {{Text: "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nxy"}},
	"no code that is one":             {{Text: "HTTP/1.1 2000 OK\r\n\r\n"}},
	"a code below all":                {{Text: "HTTP/1.1 050 What\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"}},
	"no version that is one":          {{Text: "HTTP/9 200 OK\r\n\r\n"}},
	"no reason":                       {{Text: "HTTP/1.1 200\r\n\r\n"}},
	"line feeds only":                 {{Text: "HTTP/1.1 200 OK\nContent-Length: 0\n\n"}},
	"interim answers":                 {{Text: strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 20) + "HTTP/1.1 204 No\r\n\r\n"}},
	"only interim answers":            {{Text: "HTTP/1.1 103 Early Hints\r\n\r\n"}},
	"another protocol":                {{Text: "HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nxyz"}},
	"a redirect without a target":     {reasonable(302, "")},
	"a redirect to nowhere":           {reasonable(302, "", "Location: http://[::1")},
	"a redirect for ever":             {reasonable(302, "", "Location: /")},
	"the last redirect of ten":        append(slicesOf(9, reasonable(307, "", "Location: /x")), reasonable(200, "")),
	"one more":                        append(slicesOf(10, reasonable(307, "", "Location: /x")), reasonable(200, "")),
	"a redirect to a file":            {reasonable(302, "", "Location: file:///etc/passwd")},
	"a redirect to the same by a URL": {reasonable(302, "", "Location: //127.0.0.1/x"), reasonable(200, "")},
	"a redirect to its name":          {reasonable(302, "", "Location: http://localhost/x")},
	"a redirect to where nobody is":   {reasonable(302, "", "Location: http://127.0.0.1:1/x")},
	"two targets":                     {reasonable(302, "", "Location: /a", "Location: /b"), reasonable(200, "")},
	"redirect with a cookie":          {reasonable(302, "", "Location: /a", "Set-Cookie: a=b"), reasonable(200, "")},
}

func slicesOf(n int, r reply) []reply {
	all := make([]reply, n)
	for i := range all {
		all[i] = r
	}
	return all
}

func TestPRB25BothMakeTheSameOfPeculiarServers(t *testing.T) {
	s := newSites(t)
	for name, replies := range peculiar {
		for _, scheme := range []v1.URIScheme{v1.URISchemeHTTP, v1.URISchemeHTTPS} {
			v := visit{Get: v1.HTTPGetAction{Scheme: scheme}, Replies: replies}
			if differs := s.compare(t, v); differs != "" {
				t.Errorf("%s, %s: kubelet (-), Herald (+):\n%s", scheme, name, differs)
			}
		}
	}
}

func TestPRB24BothAskTheSame(t *testing.T) {
	first := *checkSeed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	s := newSites(t)
	for seed := first; seed < first+uint64(*checkCases); seed++ {
		v := drawVisit(newDrawer(seed))
		if s.compare(t, v) == "" {
			continue
		}
		v = shrink(v, func(smaller visit) bool { return len(smaller.Replies) > 0 && s.compare(t, smaller) != "" })
		t.Fatalf("again with: go test ./diff -run '^%s$' -check.cases=1 -check.seed=%d\n%+v\nkubelet (-), Herald (+):\n%s",
			t.Name(), seed, v, s.compare(t, v))
	}
}

func TestPRB24BothSpeakHTTP2ToWhomSpeaksIt(t *testing.T) {
	var asked []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, sameAgent(fmt.Sprint(r.Proto, r.Method, r.RequestURI, r.Host, r.Header)))
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/there?x=y", http.StatusFound)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	c := &checked{Probe: v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{
		Scheme: v1.URISchemeHTTPS, Port: intstr.FromInt(server.Listener.Addr().(*net.TCPAddr).Port),
		HTTPHeaders: []v1.HTTPHeader{{Name: "Host", Value: "shop.example"}, {Name: "X-A", Value: "1"}, {Name: "x-a", Value: "2"}},
	}}}}
	theirs, ours := c.kubelet(), c.herald(t)
	if theirs != ours || ours.Verdict != succeeds {
		t.Fatalf("kubelet: %+v, Herald: %+v", theirs, ours)
	}
	if len(asked) != 4 || !strings.HasPrefix(asked[0], "HTTP/2.0") {
		t.Fatalf("%q", asked)
	}
	if diff := cmp.Diff(asked[:2], asked[2:]); diff != "" {
		t.Fatal(diff)
	}
}
