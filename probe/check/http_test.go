package check_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// newHTTPTarget starts an HTTP server.
func newHTTPTarget(t *testing.T, handler http.HandlerFunc) (check.Target, int32) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return newTarget(server.Listener)
}

func newTarget(listener net.Listener) (check.Target, int32) {
	port := int32(listener.Addr().(*net.TCPAddr).Port)
	return check.Target{
		Address:   loopback,
		Container: &v1.Container{Name: "app", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: port}}},
	}, port
}

func newHTTPProbe(port intstr.IntOrString, edits ...func(*v1.HTTPGetAction)) *v1.Probe {
	action := &v1.HTTPGetAction{Port: port}
	for _, edit := range edits {
		edit(action)
	}
	return &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: action}}
}

// runCheck checks with a long timeout.
func runCheck(t *testing.T, probe *v1.Probe, target check.Target) check.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return check.New(nil).Check(ctx, probe, target)
}

func TestPRB25_StatusCode(t *testing.T) {
	tests := map[int]struct {
		want    judge.Result
		warning bool
		message string
	}{
		200: {want: judge.Success}, 204: {want: judge.Success}, 299: {want: judge.Success},
		304: {want: judge.Success, warning: true, message: "Probe terminated redirects"},
		399: {want: judge.Success, warning: true, message: "Probe terminated redirects"},
		400: {want: judge.Failure, message: "HTTP probe failed with statuscode: 400"},
		500: {want: judge.Failure, message: "HTTP probe failed with statuscode: 500"},
	}
	for code, test := range tests {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			target, port := newHTTPTarget(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(code)
				fmt.Fprint(w, "secret")
			})
			want := check.Outcome{Result: test.want, Warning: test.warning, Message: test.message}
			if diff := cmp.Diff(want, runCheck(t, newHTTPProbe(intstr.FromInt32(port)), target)); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestPRB25_RedirectNotice(t *testing.T) {
	const plain = "Probe terminated redirects"
	tests := map[string]struct {
		location, body string // body "" is the notice of net/http
		want           string
	}{
		"only a host":   {location: "http://0.0.0.0/", want: plain + `, Response body: <a href="http://0.0.0.0/">Found</a>.`},
		"with a path":   {location: "http://0.0.0.0/reset/secret", want: plain},
		"with a query":  {location: "http://0.0.0.0/?token=secret", want: plain},
		"with a user":   {location: "http://user:secret@0.0.0.0/", want: plain},
		"another link":  {location: "http://0.0.0.0/", body: `<a href="http://secret/">Found</a>.`, want: plain},
		"more than one": {location: "http://0.0.0.0/", body: `<a href="http://0.0.0.0/">Found</a>. secret`, want: plain},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			target, port := newHTTPTarget(t, func(w http.ResponseWriter, r *http.Request) {
				if test.body == "" {
					http.Redirect(w, r, test.location, http.StatusFound)
					return
				}
				w.Header().Set("Location", test.location)
				w.WriteHeader(http.StatusFound)
				fmt.Fprint(w, test.body)
			})
			want := check.Outcome{Result: judge.Success, Warning: true, Message: test.want}
			if diff := cmp.Diff(want, runCheck(t, newHTTPProbe(intstr.FromInt32(port)), target)); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestPRB24_Request(t *testing.T) {
	header := func(name, value string) func(*v1.HTTPGetAction) {
		return func(a *v1.HTTPGetAction) {
			a.HTTPHeaders = append(a.HTTPHeaders, v1.HTTPHeader{Name: name, Value: value})
		}
	}
	path := func(path string) func(*v1.HTTPGetAction) { return func(a *v1.HTTPGetAction) { a.Path = path } }
	type request struct {
		URI, Host, Agent string
		Accept           []string
		X                []string
	}
	usual := request{URI: "/", Agent: "kube-probe/1.36", Accept: []string{"*/*"}}
	tests := map[string]struct {
		edits []func(*v1.HTTPGetAction)
		want  func(*request)
	}{
		"defaults":          {},
		"path and query":    {[]func(*v1.HTTPGetAction){path("/healthz?full=1&x=%20")}, func(r *request) { r.URI = "/healthz?full=1&x=%20" }},
		"invalid escape":    {[]func(*v1.HTTPGetAction){path("/%zz")}, func(r *request) { r.URI = "/%25zz" }},
		"Host header":       {[]func(*v1.HTTPGetAction){header("Host", "shop.example")}, func(r *request) { r.Host = "shop.example" }},
		"User-Agent":        {[]func(*v1.HTTPGetAction){header("User-Agent", "me")}, func(r *request) { r.Agent = "me" }},
		"Accept":            {[]func(*v1.HTTPGetAction){header("Accept", "text/plain")}, func(r *request) { r.Accept = []string{"text/plain"} }},
		"empty Accept":      {[]func(*v1.HTTPGetAction){header("Accept", "")}, func(r *request) { r.Accept = nil }},
		"repeated header":   {[]func(*v1.HTTPGetAction){header("X-Y", "1"), header("x-y", "2")}, func(r *request) { r.X = []string{"1", "2"} }},
		"upper-case scheme": {[]func(*v1.HTTPGetAction){func(a *v1.HTTPGetAction) { a.Scheme = "HTTP" }}, nil},
		"host name":         {[]func(*v1.HTTPGetAction){func(a *v1.HTTPGetAction) { a.Host = "localhost" }}, func(r *request) { r.Host = "localhost" }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got request
			target, port := newHTTPTarget(t, func(_ http.ResponseWriter, r *http.Request) {
				if !r.Close || r.Method != http.MethodGet || r.Header["Accept-Encoding"] != nil {
					t.Errorf("got %s, close %v, %v", r.Method, r.Close, r.Header)
				}
				got = request{r.RequestURI, r.Host, r.UserAgent(), r.Header["Accept"], r.Header["X-Y"]}
			})
			want := usual
			want.Host = "127.0.0.1"
			if test.want != nil {
				test.want(&want)
			}
			if want.Host != "shop.example" {
				want.Host += ":" + strconv.Itoa(int(port))
			}
			if outcome := runCheck(t, newHTTPProbe(intstr.FromInt32(port), test.edits...), target); outcome.Result != judge.Success {
				t.Fatalf("got %+v", outcome)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestPRB24_InvalidRequest(t *testing.T) {
	tests := map[string]struct {
		action  v1.HTTPGetAction
		message string
	}{
		"PRB-30 path without slash":         {v1.HTTPGetAction{Path: "healthz:ready"}, "no host"},
		"space in header name":              {v1.HTTPGetAction{HTTPHeaders: []v1.HTTPHeader{{Name: "X Y", Value: "1"}}}, "header name"},
		"empty header name":                 {v1.HTTPGetAction{HTTPHeaders: []v1.HTTPHeader{{Value: "1"}}}, "header name"},
		"line break in header value":        {v1.HTTPGetAction{HTTPHeaders: []v1.HTTPHeader{{Name: "X", Value: "1\r\nY: 2"}}}, "header X"},
		"control character in header value": {v1.HTTPGetAction{HTTPHeaders: []v1.HTTPHeader{{Name: "X", Value: "\x00"}}}, "header X"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sent := false
			target, port := newHTTPTarget(t, func(http.ResponseWriter, *http.Request) { sent = true })
			probe := newHTTPProbe(intstr.FromInt32(port), func(a *v1.HTTPGetAction) {
				a.Path, a.HTTPHeaders = test.action.Path, test.action.HTTPHeaders
			})
			outcome := runCheck(t, probe, target)
			if outcome.Result != judge.Failure || !strings.Contains(outcome.Message, test.message) || sent {
				t.Fatalf("got %+v, request sent %v", outcome, sent)
			}
		})
	}
}

func TestPRB24_Port(t *testing.T) {
	target, port := newHTTPTarget(t, func(http.ResponseWriter, *http.Request) {})
	tests := map[string]struct {
		port intstr.IntOrString
		want judge.Result
	}{
		"number":         {intstr.FromInt32(port), judge.Success},
		"name":           {intstr.FromString("web"), judge.Success},
		"number as text": {intstr.FromString(strconv.Itoa(int(port))), judge.Success},
		"unknown name":   {intstr.FromString("other"), judge.Error},
		"too small":      {intstr.FromInt32(0), judge.Error},
		"too large":      {intstr.FromInt32(65536), judge.Error},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, probe := range []*v1.Probe{
				newHTTPProbe(test.port), {ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: test.port}}},
			} {
				if outcome := runCheck(t, probe, target); outcome.Result != test.want {
					t.Errorf("got %+v, want %v", outcome, test.want)
				}
			}
		})
	}
}

func TestPRB26_Redirect(t *testing.T) {
	tests := map[string]struct {
		handler http.HandlerFunc
		want    judge.Result
		warning bool
	}{
		"other path": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				http.Redirect(w, r, "/there", http.StatusFound)
			}
		}, judge.Success, false},
		"failing path": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				http.Redirect(w, r, "/there", http.StatusFound)
				return
			}
			w.WriteHeader(http.StatusTeapot)
		}, judge.Failure, false},
		"other host": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/secrets", http.StatusFound)
		}, judge.Success, true},
		"endless": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }, judge.Failure, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			target, port := newHTTPTarget(t, test.handler)
			if outcome := runCheck(t, newHTTPProbe(intstr.FromInt32(port)), target); outcome.Result != test.want || outcome.Warning != test.warning {
				t.Fatalf("got %+v", outcome)
			}
		})
	}
}

func TestPRB24_TLS(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint(http2), func(t *testing.T) {
			major := 0
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { major = r.ProtoMajor }))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			target, port := newTarget(server.Listener)
			outcome := runCheck(t, newHTTPProbe(intstr.FromInt32(port), func(a *v1.HTTPGetAction) { a.Scheme = v1.URISchemeHTTPS }), target)
			if outcome.Result != judge.Success || (major == 2) != http2 {
				t.Fatalf("got %+v over HTTP/%d", outcome, major)
			}
		})
	}
}

func TestPRB24_NoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	target, port := newHTTPTarget(t, func(http.ResponseWriter, *http.Request) {})
	for _, host := range []string{"", "localhost"} {
		outcome := runCheck(t, newHTTPProbe(intstr.FromInt32(port), func(a *v1.HTTPGetAction) { a.Host = host }), target)
		if outcome.Result != judge.Success {
			t.Fatalf("got %+v", outcome)
		}
	}
}

func TestCheck_LocalAddress(t *testing.T) {
	target, port := newHTTPTarget(t, func(http.ResponseWriter, *http.Request) {})
	target.PodNetwork = true
	for _, host := range []string{"127.0.0.1", "localhost", "::1", "0.0.0.0", "169.254.169.254", "fe80::1%lo", "::ffff:127.0.0.1"} {
		for _, scheme := range []v1.URIScheme{v1.URISchemeHTTP, v1.URISchemeHTTPS} {
			outcome := runCheck(t, newHTTPProbe(intstr.FromInt32(port), func(a *v1.HTTPGetAction) { a.Host, a.Scheme = host, scheme }), target)
			if outcome.Result != judge.Error || !strings.Contains(outcome.Message, "is not allowed") {
				t.Errorf("%s://%s: got %+v", scheme, host, outcome)
			}
		}
	}
	if outcome := runCheck(t, newHTTPProbe(intstr.FromInt32(port)), target); outcome.Result != judge.Success {
		t.Errorf("pod address: got %+v", outcome)
	}
}
