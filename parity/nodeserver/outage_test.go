package nodeserver_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/heraldnode/herald/parity/controlplane"
)

// TestSRV12_APIServerAway kills the API server. Those whom it has allowed before are still served, nobody else is.
func TestSRV12_APIServerAway(t *testing.T) {
	n, users := shared.herald(t)
	cert, key := n.cluster.IssueClient(controlplane.Identity{User: controlplane.KubeletClientUser})
	late := identity{name: "a certificate that was not used before", certPEM: cert, keyPEM: key}
	expect := func(when string, who *identity, line string, want int, wantBody string) {
		t.Helper()
		if code, body := who.send(t, who.client(t), n, line); code != want || !strings.Contains(body, wantBody) {
			t.Errorf("%s: %s: %s: got %d %.200q, want %d %q", when, who.name, line, code, body, want, wantBody)
		}
	}
	expect("before", &users.apiServer, "GET /pods", http.StatusOK, "PodList")
	expect("before", &users.metrics, "GET /metrics", http.StatusOK, "")
	startAgain := sync.OnceValue(func() error { return n.cluster.APIServer.Start(context.WithoutCancel(t.Context())) })
	defer func() {
		if err := startAgain(); err != nil { // also if the test fails: others need it
			t.Error(err)
		}
	}()
	if err := n.cluster.APIServer.Kill(); err != nil { // if told to stop, it would wait for its watches to end
		t.Fatal(err)
	}
	expect("away", &users.apiServer, "GET /pods", http.StatusOK, "PodList")
	expect("away", &users.metrics, "GET /metrics", http.StatusOK, "")
	expect("away", &users.unknown, "GET /pods", http.StatusUnauthorized, "Unauthorized")
	expect("away", &users.none, "GET /pods", http.StatusUnauthorized, "Unauthorized")
	expect("away", &late, "GET /pods", http.StatusInternalServerError,
		"Authorization error (user="+controlplane.KubeletClientUser+", verb=get, resource=nodes, subresource=pods)")
	if err := startAgain(); err != nil {
		t.Fatal(err)
	}
	// The first request after an outage may find a connection of before.
	client := late.client(t)
	code, body := late.send(t, client, n, "GET /pods")
	for code == http.StatusInternalServerError && t.Context().Err() == nil {
		code, body = late.send(t, client, n, "GET /pods")
	}
	if code != http.StatusOK {
		t.Errorf("after: got %d %q", code, body)
	}
}

// TestSRV10_WebSocketToken sends a service account's token as browsers do, to Herald and the kubelet.
func TestSRV10_WebSocketToken(t *testing.T) {
	herald, users := shared.herald(t)
	kubelet, _ := shared.kubelet(t)
	for _, n := range []*node{herald, kubelet} {
		for token, want := range map[string]int{
			users.proxyReads.token: http.StatusOK, users.metrics.token: http.StatusForbidden, "unknown": http.StatusUnauthorized,
		} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+n.HTTPSAddress()+"/pods", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Connection", "Upgrade")
			request.Header.Set("Upgrade", "websocket")
			request.Header.Set("Sec-WebSocket-Protocol",
				"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io."+base64.RawURLEncoding.EncodeToString([]byte(token)))
			response, err := users.none.client(t).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			if err := response.Body.Close(); err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != want {
				t.Errorf("%s: got %d, want %d", n.name, response.StatusCode, want)
			}
		}
	}
}
