package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
)

func serve(args []string) (int, error) {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	port := flags.Int("port", 8080, "where to listen, on all addresses")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	paths := http.NewServeMux()
	paths.Handle("/healthz", newAnswer())
	paths.Handle("/readyz", newAnswer())

	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	failed := make(chan error, 1)
	go func() { failed <- http.ListenAndServe(fmt.Sprintf(":%d", *port), paths) }()
	fmt.Printf("serving on port %d\n", *port)
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
	code atomic.Int64
}

func newAnswer() *answer {
	a := &answer{}
	a.code.Store(http.StatusOK)
	return a
}

func (a *answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(int(a.code.Load()))
		return
	}
	code, err := strconv.Atoi(r.URL.Query().Get("code"))
	if err != nil || code < 200 || code > 599 {
		http.Error(w, "?code=N must be a status from 200 to 599", http.StatusBadRequest)
		return
	}
	a.code.Store(int64(code))
}
