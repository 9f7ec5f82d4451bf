package demo

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"text/template"
	"time"
)

//go:embed pods/*.yaml
var manifests embed.FS

//go:embed rules/demo.yaml
var rules []byte

// manifestValues are the variables of the manifest templates.
type manifestValues struct {
	Program           string
	WebPort, SlowPort int
}

// writeManifests writes the manifests of the pods to a directory.
func writeManifests(dir string, values manifestValues) error {
	templates, err := template.ParseFS(manifests, "pods/*.yaml")
	if err != nil {
		return err
	}
	values.Program = strconv.Quote(values.Program)
	for _, manifest := range templates.Templates() {
		var text bytes.Buffer
		if err := manifest.Execute(&text, values); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, manifest.Name()), text.Bytes(), 0o600); err != nil {
			return fmt.Errorf("write manifest: %w", err)
		}
	}
	return nil
}

// freePorts returns unused ports of the loopback address.
func freePorts(ctx context.Context, n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close() // held until all are found, so that they differ
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// Times since the start of a program at which its behaviour changes.
const (
	webReady     = 2 * time.Second
	slowStarted  = 11 * time.Second
	jobCompleted = 4 * time.Second
	crashed      = time.Second
)

// databaseVariable is the environment variable of the pod cart. It crashes unless it is goodDatabase.
const (
	databaseVariable = "DATABASE"
	goodDatabase     = "localhost"
)

// ErrCrashed is the error of a program that has already printed why it ends.
var ErrCrashed = errors.New("crashed as intended")

// Program runs the program of a pod until ctx ends or it completes.
func Program(ctx context.Context, out io.Writer, name, port string) error {
	switch name {
	case "web":
		return serve(ctx, port, "/ready", webReady)
	case "slow":
		return serve(ctx, port, "/started", slowStarted)
	case "job":
		return sleep(ctx, jobCompleted)
	case "cart":
		return runCart(ctx, out, os.Getenv(databaseVariable))
	default:
		return fmt.Errorf("the demo has no pod named %q", name)
	}
}

func runCart(ctx context.Context, out io.Writer, database string) error {
	if database == goodDatabase {
		fmt.Fprintf(out, "connected to the database at %s\n", database)
		<-ctx.Done()
		return nil
	}
	if err := sleep(ctx, crashed); err != nil {
		return err
	}
	fmt.Fprintf(out, "cannot open the database at %s: no such host\n", database)
	return ErrCrashed
}

// serve serves a health check at path, which passes once the process has that age, and a greeting at other paths. After a POST of
// /fail it does not pass until a POST of /recover.
func serve(ctx context.Context, port, path string, healthyAt time.Duration) error {
	started := time.Now()
	var visitors atomic.Int64
	var isFailing atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
		if isFailing.Load() || time.Since(started) < healthyAt {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST "+failPath, func(http.ResponseWriter, *http.Request) { isFailing.Store(true) })
	mux.HandleFunc("POST "+recoverPath, func(http.ResponseWriter, *http.Request) { isFailing.Store(false) })
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "Hello, visitor %d.\n", visitors.Add(1))
	})
	server := &http.Server{Addr: "127.0.0.1:" + port, Handler: mux, ReadHeaderTimeout: time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Paths that make the health check of web and slow fail and pass.
const (
	failPath    = "/fail"
	recoverPath = "/recover"
)

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
