package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
)

func serve(args []string) (int, error) {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	plain := flags.Int("port", 8080, "where to listen, on all addresses")
	secret := flags.Int("tls", 0, "where to listen for TLS")
	open := flags.Int("tcp", 0, "a port that is open while /readyz is well")
	health := flags.Int("grpc", 0, "where to answer gRPC's health checks as /readyz is")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	paths, readiness := http.NewServeMux(), newAnswer()
	paths.Handle("/healthz", newAnswer())
	paths.Handle("/readyz", readiness)

	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	failed := make(chan error, 4)
	for port, listen := range map[int]func(address string) error{
		*plain:  func(address string) error { return http.ListenAndServe(address, paths) },
		*secret: func(address string) error { return serveTLS(address, paths) },
		*open:   func(address string) error { return serveTCP(address, readiness) },
		*health: func(address string) error { return serveHealth(address, readiness) },
	} {
		if port != 0 {
			go func() { failed <- listen(fmt.Sprintf(":%d", port)) }()
		}
	}
	fmt.Printf("serving on port %d\n", *plain)
	select {
	case err := <-failed:
		return 1, err
	case <-terminated:
		fmt.Println("terminated")
		return 0, nil
	}
}

// answer is a path whose status code the test sets from outside: POST ?code=503 makes the later GETs answer 503.
type answer struct {
	mu      sync.Mutex // guards what follows
	code    int
	changed chan struct{} // closed and replaced with each change
}

func newAnswer() *answer { return &answer{code: http.StatusOK, changed: make(chan struct{})} }

// now is the code, and what closes when it changes.
func (a *answer) now() (code int, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.code, a.changed
}

func (a *answer) set(code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.code = code
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		code, _ := a.now()
		w.WriteHeader(code)
		return
	}
	code, err := strconv.Atoi(r.URL.Query().Get("code"))
	if err != nil || code < 200 || code > 599 {
		http.Error(w, "?code=N must be a status from 200 to 599", http.StatusBadRequest)
		return
	}
	a.set(code)
}
