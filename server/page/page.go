// Package page serves a web page that shows the pods, alerts and load of one node: a static shell, and the query API of an agent
// behind it.
//
// There is nothing without a token. A one-time code, which NewCode returns and which travels in the fragment of a URL, is exchanged for
// a token; the page sends it in a header. There are no cookies: they would be sent to every port of the host. The server must listen on
// a loopback address; requests for other host names and from other origins are refused.
package page

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/heraldnode/herald/internal/streamwriter"
	"github.com/heraldnode/herald/server"
)

const (
	apiPrefix   = "/herald/v1/"
	sessionPath = "/session"
	watchPath   = apiPrefix + "watch"
	// maxStreams bounds the streams of all browsers.
	maxStreams = 16
	// writeTimeout bounds how long a browser may take for one part of a stream. A stream as a whole may last.
	writeTimeout = time.Minute
	maxBody      = 64 << 10
)

// acts are the requests that change something and that a token may allow.
var acts = []string{"POST " + apiPrefix + "restart", "POST " + apiPrefix + "probe", "POST " + apiPrefix + "silences"}

// Page is an HTTP handler. It is safe for concurrent use.
type Page struct {
	agent    http.Handler
	sessions *sessions
	streams  chan struct{} // semaphore
	handler  http.Handler
}

// New returns a page of the agent, which answers requests of the query API: a server.Server, or a proxy to one.
func New(agent http.Handler) (*Page, error) {
	if agent == nil {
		return nil, errors.New("page: an agent is required")
	}
	p := &Page{agent: agent, sessions: newSessions(), streams: make(chan struct{}, maxStreams)}
	mux := http.NewServeMux()
	addShell(mux)
	mux.HandleFunc("POST "+sessionPath, p.serveSession)
	mux.HandleFunc("GET "+watchPath, p.authenticated(p.serveWatch))
	mux.HandleFunc("GET "+apiPrefix, p.authenticated(func(w http.ResponseWriter, r *http.Request, _ session) { p.agent.ServeHTTP(w, r) }))
	for _, pattern := range acts {
		mux.HandleFunc(pattern, p.authenticated(p.serveAct))
	}
	p.handler = server.RequireLocalHost(withHeaders(mux))
	return p, nil
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.handler.ServeHTTP(w, r) }

// NewCode returns a code that one browser can exchange for a token within a minute. mayAct says whether the token allows to restart
// containers, check probes and silence alerts.
func (p *Page) NewCode(mayAct bool) string { return p.sessions.newCode(mayAct) }

// Code returns a code that only reads, the same one until it is used or soon ends: for a display that is drawn again and again.
func (p *Page) Code() string { return p.sessions.currentCode() }

// contentSecurityPolicy allows the shell's own files and nothing else. The page builds no markup from text.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", contentSecurityPolicy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// isSameOrigin reports whether the page itself sent the request. Browsers send both headers with a POST.
func isSameOrigin(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header.Get("Origin") == "http://"+r.Host && (site == "" || site == "same-origin")
}

// grant is the answer to a code.
type grant struct {
	Token  string `json:"token"`
	MayAct bool   `json:"mayAct"`
}

func (p *Page) serveSession(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Code string `json:"code"`
	}
	if !isSameOrigin(r) {
		http.Error(w, "the request is not from this page", http.StatusForbidden)
		return
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&request); err != nil {
		http.Error(w, "the request has no code", http.StatusBadRequest)
		return
	}
	token, opened, ok := p.sessions.exchange(request.Code)
	if !ok {
		http.Error(w, "the code was used or is older than a minute: run 'herald ui' again", http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(grant{Token: token, MayAct: opened.mayAct})
}

// authenticated answers requests without a token with 401 and removes it from the others.
func (p *Page) authenticated(next func(http.ResponseWriter, *http.Request, session)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		opened, ok := p.sessions.find(token)
		if !ok {
			http.Error(w, "the session has ended: run 'herald ui' again", http.StatusUnauthorized)
			return
		}
		r.Header.Del("Authorization")
		next(w, r, opened)
	}
}

// serveWatch limits the streams: each holds a connection to the agent.
func (p *Page) serveWatch(w http.ResponseWriter, r *http.Request, _ session) {
	select {
	case p.streams <- struct{}{}:
		defer func() { <-p.streams }()
		streamwriter.Handler(p.agent, writeTimeout).ServeHTTP(w, r)
	default:
		http.Error(w, "too many pages are open: close one", http.StatusServiceUnavailable)
	}
}

func (p *Page) serveAct(w http.ResponseWriter, r *http.Request, opened session) {
	switch {
	case !opened.mayAct:
		http.Error(w, "this page is read-only: run 'herald ui --act' to change something", http.StatusForbidden)
	case !isSameOrigin(r):
		http.Error(w, "the request is not from this page", http.StatusForbidden)
	default:
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		p.agent.ServeHTTP(w, r)
	}
}
