package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// When the programs of the pods do what they are there to show, counted from their start.
const (
	webReady     = 3 * time.Second
	webIll       = 10 * time.Second
	webRecovered = 16 * time.Second
	slowStarted  = 8 * time.Second
	jobDone      = 4 * time.Second
	crashes      = time.Second
)

// Program is what the container of one of the pods runs, until ctx ends or its work is done.
func Program(ctx context.Context, out io.Writer, name, port string) error {
	switch name {
	case "web":
		return serve(ctx, port, "/ready", func(age time.Duration) bool {
			return age >= webReady && (age < webIll || age >= webRecovered)
		})
	case "slow":
		return serve(ctx, port, "/started", func(age time.Duration) bool { return age >= slowStarted })
	case "job":
		return sleep(ctx, jobDone)
	case "crash":
		if err := sleep(ctx, crashes); err != nil {
			return err
		}
		fmt.Fprintln(out, "cannot open the database: no such host")
		return errors.New("giving up")
	default:
		return fmt.Errorf("no pod of the demo is named %q", name)
	}
}

// serve answers at path with whether all is well, by how long it has been running, and with a greeting elsewhere.
func serve(ctx context.Context, port, path string, well func(age time.Duration) bool) error {
	began := time.Now()
	var greeted atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
		if !well(time.Since(began)) {
			http.Error(w, "not now", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "Hello, visitor %d.\n", greeted.Add(1))
	})
	server := &http.Server{Addr: "127.0.0.1:" + port, Handler: mux, ReadHeaderTimeout: time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
