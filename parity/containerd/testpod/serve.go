package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

func serve(args []string) (int, error) {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	httpPort := flags.Int("port", 8080, "HTTP port, on all addresses")
	tlsPort := flags.Int("tls", 0, "TLS port")
	tcpPort := flags.Int("tcp", 0, "TCP port that is open while /readyz succeeds")
	grpcPort := flags.Int("grpc", 0, "port for gRPC health checks, SERVING while /readyz succeeds")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	mux, readiness := http.NewServeMux(), newStatus()
	mux.Handle("/healthz", newStatus())
	mux.Handle("/readyz", readiness)

	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	failed := make(chan error, 4)
	for port, listen := range map[int]func(address string) error{
		*httpPort: func(address string) error { return http.ListenAndServe(address, mux) },
		*tlsPort:  func(address string) error { return serveTLS(address, mux) },
		*tcpPort:  func(address string) error { return serveTCP(address, readiness) },
		*grpcPort: func(address string) error { return serveHealth(address, readiness) },
	} {
		if port != 0 {
			go func() { failed <- listen(fmt.Sprintf(":%d", port)) }()
		}
	}
	fmt.Printf("serving on port %d\n", *httpPort)
	select {
	case err := <-failed:
		return 1, err
	case <-terminated:
		fmt.Println("terminated")
		return 0, nil
	}
}

// status is an HTTP path whose status code the test sets: after POST ?code=503, GET returns 503.
type status struct {
	mu      sync.Mutex // guards code and changed
	code    int
	changed chan struct{} // closed and replaced with each change
}

func newStatus() *status { return &status{code: http.StatusOK, changed: make(chan struct{})} }

// get returns the code and a channel that is closed when it changes.
func (s *status) get() (code int, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.code, s.changed
}

func (s *status) set(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code = code
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *status) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		code, _ := s.get()
		w.WriteHeader(code)
		return
	}
	code, err := strconv.Atoi(r.URL.Query().Get("code"))
	if err != nil || code < 200 || code > 599 {
		http.Error(w, "?code=N must be a status from 200 to 599", http.StatusBadRequest)
		return
	}
	s.set(code)
}

// serveTLS uses a self-signed certificate, like most probed servers.
func serveTLS(address string, handler http.Handler) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: private}},
	}}
	return server.ListenAndServeTLS("", "")
}

// serveTCP keeps the port open while the status is a success.
func serveTCP(address string, s *status) error {
	for {
		code, changed := s.get()
		if code >= http.StatusBadRequest {
			<-changed
			continue
		}
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
		if err != nil {
			return err
		}
		go func() {
			for code < http.StatusBadRequest {
				<-changed
				code, changed = s.get()
			}
			_ = listener.Close()
		}()
		acceptAll(listener)
	}
}

// acceptAll accepts and closes connections until the listener is closed.
func acceptAll(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		_ = connection.Close()
	}
}

func serveHealth(address string, s *status) error {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	healthServer, server := health.NewServer(), grpc.NewServer()
	healthv1.RegisterHealthServer(server, healthServer)
	go func() {
		for {
			code, changed := s.get()
			serving := healthv1.HealthCheckResponse_SERVING
			if code >= http.StatusBadRequest {
				serving = healthv1.HealthCheckResponse_NOT_SERVING
			}
			healthServer.SetServingStatus("", serving)
			<-changed
		}
	}()
	return server.Serve(listener)
}
