package localapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/localapi"
)

// newContainerServer serves a pod "one" with one container and a pod "many" with several, and passes containers to the handler.
func newContainerServer(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	many := heraldtest.NewPod("many", heraldtest.WithContainers(v1.Container{Name: "a"}, v1.Container{Name: "b"}))
	many.Spec.InitContainers = []v1.Container{{Name: "init"}}
	many.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debugger"}}}
	server, err := localapi.New(localapi.Config{Agent: newFakeAgent(heraldtest.NewPod("one"), many), Containers: handler})
	if err != nil {
		t.Fatal(err)
	}
	httpServer := httptest.NewServer(server)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		httpServer.Close()
	})
	return httpServer
}

func send(t *testing.T, server *httptest.Server, request string) (code int, body string) {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/api/v1/namespaces/default/pods/"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// Requests reach the handler with the kubelet's paths and parameters, and without credentials.
func TestKCT18_Parameters(t *testing.T) {
	server := newContainerServer(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s%s", r.Method, r.RequestURI, r.Header.Get("Authorization"))
	})
	for request, want := range map[string]string{
		"GET one/log": "GET /containerLogs/default/one/main",
		"GET many/log?container=init&follow=true&previous=false&timestamps=1&tailLines=3&sinceSeconds=2&limitBytes=9&pretty=true": "GET " +
			"/containerLogs/default/many/init?follow=true&limitBytes=9&sinceSeconds=2&tailLines=3&timestamps=true",
		"GET one/log?sinceTime=2026-01-02T03:04:05Z&stream=Stdout&previous=true": "GET " +
			"/containerLogs/default/one/main?previous=true&sinceTime=2026-01-02T03%3A04%3A05Z&stream=Stdout",
		"POST one/exec?command=sh&command=-c&command=echo+a%26b&stdin=true&stdout=true&stderr=true&tty=false": "POST " +
			"/exec/default/one/main?command=sh&command=-c&command=echo+a%26b&error=1&input=1&output=1",
		"GET many/exec?container=b&command=ls&stdout=true":                 "GET /exec/default/many/b?command=ls&output=1",
		"POST many/attach?container=debugger&stdin=true&stdout=1&tty=true": "POST /attach/default/many/debugger?input=1&output=1&tty=1",
		"POST many/portforward":                                            "POST /portForward/default/many",
		"GET many/portforward?ports=80&ports=443":                          "GET /portForward/default/many?port=80%2C443",
	} {
		if code, got := send(t, server, request); code != http.StatusOK || got != want {
			t.Errorf("%s: got %d %q, want %q", request, code, got, want)
		}
	}
}

// Errors are always a Status: those of this server and those of the handler, which are text (KCT-13).
func TestKCT17_Errors(t *testing.T) {
	server := newContainerServer(t, func(w http.ResponseWriter, r *http.Request) {
		code := http.StatusBadRequest
		_, _ = fmt.Sscanf(r.URL.Query().Get("tailLines"), "%d", &code)
		http.Error(w, "it is as it is", code)
	})
	for request, want := range map[string]string{
		"GET many/log":               "400 BadRequest a container name must be specified for pod many, choose one of: [init a b debugger]",
		"POST many/exec?container=x": "400 BadRequest container x is not valid for pod many",
		"GET absent/log":             `404 NotFound pods "absent" not found`,
		"GET absent/portforward":     `404 NotFound pods "absent" not found`,
		"DELETE one/exec":            `405 MethodNotAllowed delete is not supported on resources of kind "pods"`,
		"POST one/log":               `405 MethodNotAllowed create is not supported on resources of kind "pods"`,
		"PATCH one/ephemeralcontainers": `405 MethodNotAllowed adding ephemeral containers is not supported on resources of kind "pods": this ` +
			`node is read-only`,
		"GET one/log?tailLines=400": "400 BadRequest it is as it is",
		"GET one/log?tailLines=404": "404 NotFound it is as it is",
		"GET one/log?tailLines=422": "422 Invalid it is as it is",
		"GET one/log?tailLines=500": "500 InternalError Internal error occurred: it is as it is",
	} {
		code, body := send(t, server, request)
		var status metav1.Status
		if err := json.Unmarshal([]byte(body), &status); err != nil {
			t.Errorf("%s: %v: %s", request, err, body)
			continue
		}
		got := fmt.Sprintf("%d %s %s", code, status.Reason, status.Message)
		if status.Kind != "Status" || int(status.Code) != code || !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %q", request, got, want)
		}
	}
}

// A handler takes over the connection, as for SPDY and web sockets.
func TestKCT4_Upgrade(t *testing.T) {
	server := newContainerServer(t, func(w http.ResponseWriter, _ *http.Request) {
		connection, buffer, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		_, _ = buffer.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = buffer.Flush()
		_, _ = io.CopyN(connection, buffer, 5)
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/api/v1/namespaces/default/pods/one/exec?command=cat", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	response, err := http.DefaultClient.Do(r)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v", response, err)
	}
	defer response.Body.Close()
	if _, err := response.Body.(io.Writer).Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(response.Body); string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
}

// Discovery and reviews name the subresources if there is a handler for them.
func TestKCT4_Subresources(t *testing.T) {
	server := newContainerServer(t, func(http.ResponseWriter, *http.Request) {})
	get := func(path, accept string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", accept)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		content, _ := io.ReadAll(response.Body)
		return string(content)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal([]byte(get("/api/v1", "application/json")), &list); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, resource := range list.APIResources {
		got[resource.Name] = fmt.Sprint(resource.Kind, resource.Verbs)
	}
	for name, want := range map[string]string{
		"pods": "Pod[get list watch]", "pods/log": "Pod[get]", "pods/exec": "PodExecOptions[create get]",
		"pods/attach": "PodAttachOptions[create get]", "pods/portforward": "PodPortForwardOptions[create get]",
	} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
	aggregated := get("/api", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if !strings.Contains(aggregated, `{"subresource":"log","responseKind":{"group":"","version":"v1","kind":"Pod"},"verbs":["get"]}`) {
		t.Errorf("aggregated discovery has no logs: %s", aggregated)
	}
	for attributes, want := range map[string]bool{
		`"verb":"get","resource":"pods","subresource":"log"`: true, `"verb":"create","resource":"pods","subresource":"exec"`: true,
		`"verb":"create","resource":"pods","subresource":"log"`: false, `"verb":"get","resource":"nodes","subresource":"log"`: false,
		`"verb":"create","resource":"pods","subresource":"eviction"`: false,
	} {
		review := `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{` + attributes + `}}}`
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			strings.NewReader(review))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		content, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if strings.Contains(string(content), `"allowed":true`) != want {
			t.Errorf("%s: want allowed %v, got %s", attributes, want, content)
		}
	}
}
