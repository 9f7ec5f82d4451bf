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

// served is a server and the target that it is.
func served(t *testing.T, handler http.HandlerFunc) (check.Target, int32) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return targetOf(server.Listener)
}

func targetOf(listener net.Listener) (check.Target, int32) {
	port := int32(listener.Addr().(*net.TCPAddr).Port)
	return check.Target{
		Address:   loopback,
		Container: &v1.Container{Name: "app", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: port}}},
	}, port
}

func httpGet(port intstr.IntOrString, edits ...func(*v1.HTTPGetAction)) *v1.Probe {
	action := &v1.HTTPGetAction{Port: port}
	for _, edit := range edits {
		edit(action)
	}
	return &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: action}}
}

// ask checks with a timeout that no honest answer needs.
func ask(t *testing.T, probe *v1.Probe, target check.Target) check.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return check.New(nil).Check(ctx, probe, target)
}

func TestPRB25TheStatusCodeDecides(t *testing.T) {
	tests := map[int]struct {
		want    judge.Result
		warning bool
		message string
	}{
		200: {want: judge.Success}, 204: {want: judge.Success}, 299: {want: judge.Success},
		304: {want: judge.Success, warning: true, message: "Probe terminated redirects, Response body: "},
		399: {want: judge.Success, warning: true, message: "Probe terminated redirects, Response body: secret"},
		400: {want: judge.Failure, message: "HTTP probe failed with statuscode: 400"},
		500: {want: judge.Failure, message: "HTTP probe failed with statuscode: 500"},
	}
	for code, test := range tests {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			target, port := served(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(code)
				fmt.Fprint(w, "secret")
			})
			want := check.Outcome{Result: test.want, Warning: test.warning, Message: test.message}
			if diff := cmp.Diff(want, ask(t, httpGet(intstr.FromInt32(port)), target)); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestPRB24RequestsAreMadeAsTheSpecSays(t *testing.T) {
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
		"nothing given":         {},
		"a path and a query":    {[]func(*v1.HTTPGetAction){path("/healthz?full=1&x=%20")}, func(r *request) { r.URI = "/healthz?full=1&x=%20" }},
		"a path that is none":   {[]func(*v1.HTTPGetAction){path("/%zz")}, func(r *request) { r.URI = "/%25zz" }},
		"a host":                {[]func(*v1.HTTPGetAction){header("Host", "shop.example")}, func(r *request) { r.Host = "shop.example" }},
		"another agent":         {[]func(*v1.HTTPGetAction){header("User-Agent", "me")}, func(r *request) { r.Agent = "me" }},
		"another Accept":        {[]func(*v1.HTTPGetAction){header("Accept", "text/plain")}, func(r *request) { r.Accept = []string{"text/plain"} }},
		"an empty Accept":       {[]func(*v1.HTTPGetAction){header("Accept", "")}, func(r *request) { r.Accept = nil }},
		"one header twice":      {[]func(*v1.HTTPGetAction){header("X-Y", "1"), header("x-y", "2")}, func(r *request) { r.X = []string{"1", "2"} }},
		"a scheme in capitals":  {[]func(*v1.HTTPGetAction){func(a *v1.HTTPGetAction) { a.Scheme = "HTTP" }}, nil},
		"a host that is a name": {[]func(*v1.HTTPGetAction){func(a *v1.HTTPGetAction) { a.Host = "localhost" }}, func(r *request) { r.Host = "localhost" }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got request
			target, port := served(t, func(_ http.ResponseWriter, r *http.Request) {
				if !r.Close || r.Method != http.MethodGet || r.Header["Accept-Encoding"] != nil {
					t.Errorf("%s, close %v, %v", r.Method, r.Close, r.Header)
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
			if found := ask(t, httpGet(intstr.FromInt32(port), test.edits...), target); found.Result != judge.Success {
				t.Fatal(found)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestPRB24WhatCannotBeSentIsAFailureAndIsNotSent(t *testing.T) {
	tests := map[string]struct {
		action v1.HTTPGetAction
		says   string
	}{
		"PRB-30: a path that hides the host": {v1.HTTPGetAction{Path: "healthz:ready"}, "no host"},
		"a header's name with a space":       {v1.HTTPGetAction{HTTPHeaders: []v1.HTTPHeader{{Name: "X Y", Value: "1"}}}, "header name"},
		"a header without a name":            {v1.HTTPGetAction{HTTPHeaders: []v1.HTTPHeader{{Value: "1"}}}, "header name"},
		"a header's value of two lines":      {v1.HTTPGetAction{HTTPHeaders: []v1.HTTPHeader{{Name: "X", Value: "1\r\nY: 2"}}}, "header X"},
		"a header's value that steers":       {v1.HTTPGetAction{HTTPHeaders: []v1.HTTPHeader{{Name: "X", Value: "\x00"}}}, "header X"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			asked := false
			target, port := served(t, func(http.ResponseWriter, *http.Request) { asked = true })
			probe := httpGet(intstr.FromInt32(port), func(a *v1.HTTPGetAction) {
				a.Path, a.HTTPHeaders = test.action.Path, test.action.HTTPHeaders
			})
			found := ask(t, probe, target)
			if found.Result != judge.Failure || !strings.Contains(found.Message, test.says) || asked {
				t.Fatalf("%+v, asked %v", found, asked)
			}
		})
	}
}

func TestPRB24PortsMayHaveNames(t *testing.T) {
	target, port := served(t, func(http.ResponseWriter, *http.Request) {})
	tests := map[string]struct {
		port intstr.IntOrString
		want judge.Result
	}{
		"a number":               {intstr.FromInt32(port), judge.Success},
		"a name":                 {intstr.FromString("web"), judge.Success},
		"a number as text":       {intstr.FromString(strconv.Itoa(int(port))), judge.Success},
		"a name that nobody has": {intstr.FromString("other"), judge.Error},
		"too small":              {intstr.FromInt32(0), judge.Error},
		"too large":              {intstr.FromInt32(65536), judge.Error},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, probe := range []*v1.Probe{
				httpGet(test.port), {ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: test.port}}},
			} {
				if found := ask(t, probe, target); found.Result != test.want {
					t.Errorf("%+v, want %v", found, test.want)
				}
			}
		})
	}
}

func TestPRB26RedirectsAreFollowedOnTheSameHostOnly(t *testing.T) {
	tests := map[string]struct {
		handler http.HandlerFunc
		want    judge.Result
		warning bool
	}{
		"to another path": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				http.Redirect(w, r, "/there", http.StatusFound)
			}
		}, judge.Success, false},
		"to another path that fails": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				http.Redirect(w, r, "/there", http.StatusFound)
				return
			}
			w.WriteHeader(http.StatusTeapot)
		}, judge.Failure, false},
		"to another host": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/secrets", http.StatusFound)
		}, judge.Success, true},
		"for ever": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }, judge.Failure, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			target, port := served(t, test.handler)
			if found := ask(t, httpGet(intstr.FromInt32(port)), target); found.Result != test.want || found.Warning != test.warning {
				t.Fatalf("%+v", found)
			}
		})
	}
}

func TestPRB24TLSIsNotVerifiedAndMayBeHTTP2(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint(http2), func(t *testing.T) {
			major := 0
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { major = r.ProtoMajor }))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			target, port := targetOf(server.Listener)
			found := ask(t, httpGet(intstr.FromInt32(port), func(a *v1.HTTPGetAction) { a.Scheme = v1.URISchemeHTTPS }), target)
			if found.Result != judge.Success || (major == 2) != http2 {
				t.Fatalf("%+v over HTTP/%d", found, major)
			}
		})
	}
}

func TestPRB24NoProxyIsUsed(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	target, port := served(t, func(http.ResponseWriter, *http.Request) {})
	for _, host := range []string{"", "localhost"} {
		found := ask(t, httpGet(intstr.FromInt32(port), func(a *v1.HTTPGetAction) { a.Host = host }), target)
		if found.Result != judge.Success {
			t.Fatalf("%+v", found)
		}
	}
}

func TestProbesDoNotReachTheNodesOwnAddresses(t *testing.T) {
	target, port := served(t, func(http.ResponseWriter, *http.Request) {})
	target.PodNetwork = true
	for _, host := range []string{"127.0.0.1", "localhost", "::1", "0.0.0.0", "169.254.169.254", "fe80::1%lo", "::ffff:127.0.0.1"} {
		for _, scheme := range []v1.URIScheme{v1.URISchemeHTTP, v1.URISchemeHTTPS} {
			found := ask(t, httpGet(intstr.FromInt32(port), func(a *v1.HTTPGetAction) { a.Host, a.Scheme = host, scheme }), target)
			if found.Result != judge.Error || !strings.Contains(found.Message, "is not allowed") {
				t.Errorf("%s://%s: %+v", scheme, host, found)
			}
		}
	}
	if found := ask(t, httpGet(intstr.FromInt32(port)), target); found.Result != judge.Success {
		t.Errorf("the pod's own address: %+v", found)
	}
}
