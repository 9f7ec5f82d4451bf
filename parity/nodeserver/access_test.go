package nodeserver_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the table in docs/security.md")

const (
	document = "../../docs/security.md"
	begin    = "<!-- access: written by `go test ./nodeserver -run EveryIdentity -update` in parity -->\n"
	end      = "<!-- /access -->"
)

// accessRequests are requests to every path of the kubelet, to some that do not exist, and with unusual methods. The pod does not exist:
// an allowed request is answered with 404.
var accessRequests = []string{
	"GET /healthz", "GET /healthz/ping", "GET /pods", "HEAD /pods", "DELETE /pods", "GET /runningpods/", "GET /stats/summary",
	"GET /metrics",
	"GET /metrics/cadvisor", "GET /metrics/probes", "GET /metrics/resource", "GET /metrics/slis", "GET /configz",
	"GET /containerLogs/default/none/c", "GET /exec/default/none/c?command=id&output=1", "POST /exec/default/none/c?command=id&output=1",
	"GET /attach/default/none/c?output=1", "POST /attach/default/none/c?output=1",
	"GET /portForward/default/none", "POST /portForward/default/none",
	"GET /run/default/none/c?cmd=id", "POST /run/default/none/c?cmd=id", "POST /checkpoint/default/none/c", "GET /logs/", "GET /logs",
	"GET /debug/pprof/", "GET /debug/pprof/cmdline", "PUT /debug/flags/v", "GET /statusz", "GET /flagz", "GET /",
	"GET /nothing", "POST /nothing",
	"GET //pods", "GET /pods/../exec/default/none/c", "OPTIONS /pods", "PATCH /pods",
}

// requestTimeout only ends tests that hang.
const requestTimeout = 5 * time.Minute

// client returns a client with the identity, which follows no redirects. Close its idle connections.
func (i *identity) client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: i.tls(t)}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport: transport, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// send returns status code and body of the answer to a request like "GET /pods".
func (i *identity) send(t *testing.T, client *http.Client, n *node, line string) (int, string) {
	t.Helper()
	method, path, _ := strings.Cut(line, " ")
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, "https://"+n.HTTPSAddress()+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if i.token != "" {
		request.Header.Set("Authorization", "Bearer "+i.token)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("%s: %s: %v", i.name, line, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s: %s: %v", i.name, line, err)
	}
	return response.StatusCode, string(body)
}

// access returns the status codes by request and the user's name.
func access(t *testing.T, n *node, identities []identity) map[string]map[string]int {
	t.Helper()
	codes := map[string]map[string]int{}
	for i := range identities {
		who := &identities[i]
		client := who.client(t)
		for _, line := range accessRequests {
			code, body := who.send(t, client, n, line)
			if codes[line] == nil {
				codes[line] = map[string]int{}
			}
			codes[line][who.name] = code
			if code == http.StatusUnauthorized && body != "Unauthorized" && !strings.HasPrefix(line, "HEAD ") {
				t.Errorf("%s: %s: got body %q", who.name, line, body)
			}
			if code >= http.StatusInternalServerError {
				t.Errorf("%s: %s: got %d %q", who.name, line, code, body)
			}
		}
	}
	return codes
}

// TestSRV24_EveryIdentity sends every request as every user. The table of status codes is part of docs/security.md. SRV-21, SRV-26
func TestSRV24_EveryIdentity(t *testing.T) {
	n, users := shared.herald(t)
	identities := users.of(n)
	codes := access(t, n, identities)
	for line, byUser := range codes {
		for i := range identities {
			switch who := &identities[i]; {
			case who.isUnauthenticated && byUser[who.name] != http.StatusUnauthorized:
				t.Errorf("%s: %s: got %d, want 401", who.name, line, byUser[who.name])
			case who.name == users.nobody.name && byUser[who.name] != http.StatusForbidden:
				t.Errorf("%s: %s: got %d, want 403", who.name, line, byUser[who.name])
			}
		}
	}
	want := begin + accessTable(identities, codes)
	content, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, hasBegin := strings.Cut(string(content), begin)
	table, after, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		t.Fatalf("%s lacks the lines around the table", document)
	}
	if *update {
		if err := os.WriteFile(document, []byte(before+want+end+after), 0o644); err != nil { //nolint:gosec // documentation
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(begin+table, want); diff != "" {
		t.Errorf("%s is out of date (-document +server); run go test ./nodeserver -run EveryIdentity -update\n%s", document, diff)
	}
}

// accessTable returns the codes as a table. The columns of those who are not authenticated are one.
func accessTable(identities []identity, codes map[string]map[string]int) string {
	var table strings.Builder
	table.WriteString("| request | not authenticated |")
	rule := "| --- | --- |"
	for i := range identities {
		if !identities[i].isUnauthenticated {
			table.WriteString(" " + identities[i].name + " |")
			rule += " --- |"
		}
	}
	table.WriteString("\n" + rule + "\n")
	for _, line := range accessRequests {
		fmt.Fprintf(&table, "| `%s` |", line)
		strangers := map[int]bool{}
		for i := range identities {
			if identities[i].isUnauthenticated {
				strangers[codes[line][identities[i].name]] = true
			}
		}
		var list []string
		for code := range strangers {
			list = append(list, strconv.Itoa(code))
		}
		table.WriteString(" " + strings.Join(list, ", ") + " |")
		for i := range identities {
			if !identities[i].isUnauthenticated {
				fmt.Fprintf(&table, " %d |", codes[line][identities[i].name])
			}
		}
		table.WriteString("\n")
	}
	return table.String()
}
