package page_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heraldnode/herald/server/page"
)

const origin = "http://127.0.0.1:7"

// agent answers everything, and remembers the last request.
type agent struct{ last *http.Request }

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.last = r
	_, _ = io.WriteString(w, "secret")
}

func newPage(t *testing.T) (*page.Page, *agent) {
	t.Helper()
	a := &agent{}
	p, err := page.New(a)
	if err != nil {
		t.Fatal(err)
	}
	return p, a
}

func send(p *page.Page, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequestWithContext(context.Background(), method, origin+path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			request.Host = headers[i+1]
			continue
		}
		request.Header.Set(headers[i], headers[i+1])
	}
	response := httptest.NewRecorder()
	p.ServeHTTP(response, request)
	return response
}

func exchange(p *page.Page, code string, headers ...string) *httptest.ResponseRecorder {
	body, _ := json.Marshal(map[string]string{"code": code})
	return send(p, "POST", "/session", string(body), append([]string{"Origin", origin}, headers...)...)
}

func newToken(t *testing.T, p *page.Page, mayAct bool) string {
	t.Helper()
	response := exchange(p, p.NewCode(mayAct))
	var granted struct {
		Token  string
		MayAct bool
	}
	if err := json.Unmarshal(response.Body.Bytes(), &granted); err != nil || response.Code != http.StatusOK || granted.MayAct != mayAct {
		t.Fatalf("got %d %s, %v", response.Code, response.Body, err)
	}
	return "Bearer " + granted.Token
}

// P2: no data without a token.
func TestP2_NoDataWithoutToken(t *testing.T) {
	p, a := newPage(t)
	code := p.NewCode(true)
	for _, path := range []string{"/herald/v1/pods", "/herald/v1/watch", "/herald/v1/history", "/herald/v1/", "/herald/v1/pods/../node"} {
		for _, authorization := range []string{"", "Bearer ", "Bearer x", "Basic eDp4", "Bearer " + code} {
			for _, method := range []string{"GET", "HEAD", "POST", "DELETE", "OPTIONS"} {
				response := send(p, method, path, "{}", "Authorization", authorization, "Origin", origin)
				if response.Code < 300 || strings.Contains(response.Body.String(), "secret") || a.last != nil {
					t.Errorf("%s %s with %q: got %d", method, path, authorization, response.Code)
				}
			}
		}
	}
	for _, path := range []string{"/pods", "/metrics", "/stats/summary", "/exec/a/b/c"} { // also with a token
		if response := send(p, "GET", path, "", "Authorization", newToken(t, p, true)); response.Code != http.StatusNotFound || a.last != nil {
			t.Errorf("%s: got %d, want 404", path, response.Code)
		}
	}
	token := newToken(t, p, false)
	if response := send(p, "GET", "/herald/v1/pods", "", "Authorization", token); response.Body.String() != "secret" {
		t.Errorf("with a token: got %d", response.Code)
	}
	if a.last.Header.Get("Authorization") != "" {
		t.Error("the token reaches the agent")
	}
}

func TestP2_CodeIsUsedOnce(t *testing.T) {
	p, _ := newPage(t)
	code := p.NewCode(false)
	for i, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		if response := exchange(p, code); response.Code != want {
			t.Errorf("use %d: got %d, want %d", i+1, response.Code, want)
		}
	}
	if response := exchange(p, ""); response.Code != http.StatusUnauthorized {
		t.Errorf("no code: got %d", response.Code)
	}
}

func TestP2_CodesAndTokensEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newPage(t)
		late, token := p.NewCode(false), newToken(t, p, false)
		time.Sleep(time.Minute)
		if response := exchange(p, late); response.Code != http.StatusUnauthorized {
			t.Errorf("a code of a minute ago: got %d", response.Code)
		}
		time.Sleep(12*time.Hour - time.Minute - time.Second)
		if response := send(p, "GET", "/herald/v1/pods", "", "Authorization", token); response.Code != http.StatusOK {
			t.Errorf("a token before its end: got %d", response.Code)
		}
		time.Sleep(time.Second)
		if response := send(p, "GET", "/herald/v1/pods", "", "Authorization", token); response.Code != http.StatusUnauthorized {
			t.Errorf("a token after 12 hours: got %d", response.Code)
		}
	})
}

// A display shows the same code until it is used or is about to end.
func TestCode_Current(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newPage(t)
		first := p.Code()
		if second := p.Code(); second != first {
			t.Errorf("got %q and %q at once", first, second)
		}
		exchange(p, first)
		used := p.Code()
		if used == first {
			t.Error("got a code that was used")
		}
		time.Sleep(31 * time.Second)
		if late := p.Code(); late == used || exchange(p, late).Code != http.StatusOK || exchange(p, used).Code != http.StatusOK {
			t.Error("want a new code, and the one before for a while")
		}
	})
}

// Codes that nobody uses do not fill the memory, and the newest remains valid.
func TestCodesAreBounded(t *testing.T) {
	p, _ := newPage(t)
	first := p.NewCode(false)
	var last string
	for range 1000 {
		last = p.NewCode(false)
	}
	if exchange(p, first).Code != http.StatusUnauthorized || exchange(p, last).Code != http.StatusOK {
		t.Error("want the newest codes only")
	}
}

func TestOriginAndHost(t *testing.T) {
	p, a := newPage(t)
	act, read := newToken(t, p, true), newToken(t, p, false)
	tests := map[string]struct {
		headers []string
		want    int
	}{
		"own origin":          {[]string{"Authorization", act, "Origin", origin, "Sec-Fetch-Site", "same-origin"}, 200},
		"read-only":           {[]string{"Authorization", read, "Origin", origin}, 403},
		"no origin":           {[]string{"Authorization", act}, 403},
		"foreign origin":      {[]string{"Authorization", act, "Origin", "http://evil.test"}, 403},
		"other port":          {[]string{"Authorization", act, "Origin", "http://127.0.0.1:8"}, 403},
		"cross-site":          {[]string{"Authorization", act, "Origin", origin, "Sec-Fetch-Site", "cross-site"}, 403},
		"other host (rebind)": {[]string{"Authorization", act, "Origin", "http://evil.test", "Host", "evil.test"}, 403},
	}
	for name, test := range tests {
		a.last = nil
		response := send(p, "POST", "/herald/v1/restart", "{}", test.headers...)
		if response.Code != test.want || (a.last != nil) != (test.want == 200) {
			t.Errorf("%s: got %d, want %d", name, response.Code, test.want)
		}
	}
	if response := exchange(p, p.NewCode(true), "Origin", "http://evil.test"); response.Code != http.StatusForbidden {
		t.Errorf("code from a foreign origin: got %d", response.Code)
	}
	if response := send(p, "POST", "/herald/v1/actions/resume", "{}", "Authorization", act, "Origin", origin); response.Code < 400 {
		t.Errorf("an act that the page does not have: got %d", response.Code)
	}
}

// The shell is small, has strict headers, names its files by their hash, and nothing outside.
func TestShell(t *testing.T) {
	p, _ := newPage(t)
	index := send(p, "GET", "/", "")
	policy := index.Header().Get("Content-Security-Policy")
	if index.Code != http.StatusOK || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Fatalf("got %d, %v", index.Code, index.Header())
	}
	files := regexp.MustCompile(`(?:href|src)="(/[0-9a-f]{16}/[a-z]+\.(?:js|css|svg))"`).FindAllStringSubmatch(index.Body.String(), -1)
	if len(files) != 3 {
		t.Fatalf("got %v, want a style, a script and an icon", files)
	}
	total, seen := len(zip(t, index.Body.Bytes())), map[string]bool{}
	var load func(path string)
	load = func(path string) {
		if seen[path] {
			return
		}
		seen[path] = true
		response := send(p, "GET", path, "", "Accept-Encoding", "gzip")
		if response.Code != http.StatusOK || !strings.Contains(response.Header().Get("Cache-Control"), "immutable") {
			t.Fatalf("%s: got %d, %v", path, response.Code, response.Header())
		}
		total += response.Body.Len()
		content := unzip(t, response.Body)
		for _, imported := range regexp.MustCompile(`from '\./([a-z]+\.js)'`).FindAllStringSubmatch(content, -1) {
			load(path[:18] + imported[1])
		}
		if strings.Contains(content, "innerHTML") || strings.Contains(content, "insertAdjacentHTML") || strings.Contains(content, "document.write") {
			t.Errorf("%s builds markup from text", path)
		}
		if outside := regexp.MustCompile(`https?://[^\s'"]*`).FindAllString(content, -1); len(outside) > 0 && outside[0] != "http://www.w3.org/2000/svg" {
			t.Errorf("%s names %v", path, outside)
		}
	}
	for _, file := range files {
		load(file[1])
	}
	if total > 20<<10 {
		t.Errorf("the shell has %d bytes, more than 20 KB", total)
	}
	t.Logf("%d files, %d bytes", len(seen)+1, total)
}

func zip(t *testing.T, content []byte) []byte {
	t.Helper()
	var buffer bytes.Buffer
	writer := gzip.NewWriter(&buffer)
	if _, err := writer.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

func unzip(t *testing.T, content io.Reader) string {
	t.Helper()
	reader, err := gzip.NewReader(content)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
