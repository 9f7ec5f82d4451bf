package nodeserver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/nodeserver"
)

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// A port that is taken is tried until it is free, said once in the log, and unhealthy until then.
func TestSRV1_PortTaken(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log syncBuffer
	config := newConfig(t)
	config.Address, config.Logger = taken.Addr().String(), slog.New(slog.NewTextHandler(&log, nil))
	s := newServer(t, config)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	heraldtest.Eventually(t, func() error {
		if s.Listening() == nil {
			return errors.New("no failure yet")
		}
		return nil
	})
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	client := newClient(t, false)
	heraldtest.Eventually(t, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+config.Address+"/healthz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
	if err := s.Listening(); err != nil {
		t.Errorf("it serves and says %v", err)
	}
	if count := strings.Count(log.String(), "Failed to serve"); count != 1 {
		t.Errorf("got %d messages, want 1:\n%s", count, log.String())
	}
}

// The pool of authorities is that of the handshake, and HTTP/2 works with it.
func TestSRV5_SRV7_ClientCAs(t *testing.T) {
	config := newConfig(t)
	ca := newCertificate(t)
	var mu sync.Mutex
	pool := x509.NewCertPool()
	config.TLS.ClientCAs = func() *x509.CertPool {
		mu.Lock()
		defer mu.Unlock()
		return pool
	}
	shown := make(chan int, 1)
	config.Require = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			shown <- len(r.TLS.PeerCertificates)
			next.ServeHTTP(w, r)
		})
	}
	address, _ := serve(t, newServer(t, config))
	connect := func() (named int, protocol int) {
		transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true,
			GetClientCertificate: func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
				named = len(info.AcceptableCAs)
				return ca, nil
			},
		}}
		defer transport.CloseIdleConnections()
		response := get(t, &http.Client{Transport: transport}, "https://"+address+"/healthz", "u")
		defer response.Body.Close()
		return named, response.ProtoMajor
	}
	if named, protocol := connect(); named != 0 || protocol != 2 || <-shown != 1 {
		t.Errorf("got %d authorities and HTTP/%d, want none and HTTP/2", named, protocol)
	}
	mu.Lock()
	pool = x509.NewCertPool()
	pool.AddCert(ca.Leaf)
	mu.Unlock()
	if named, protocol := connect(); named != 1 || protocol != 2 || <-shown != 1 {
		t.Errorf("got %d authorities and HTTP/%d after the file changed, want 1 and HTTP/2", named, protocol)
	}
}

func TestSRV2_Versions(t *testing.T) {
	tests := map[string]struct {
		server     nodeserver.TLS
		client     *tls.Config
		isRejected bool
	}{
		"1.2 by default":   {nodeserver.TLS{}, &tls.Config{MaxVersion: tls.VersionTLS12}, false},
		"1.1 by default":   {nodeserver.TLS{}, &tls.Config{MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11}, true},
		"1.2 where 1.3 is": {nodeserver.TLS{MinVersion: "VersionTLS13"}, &tls.Config{MaxVersion: tls.VersionTLS12}, true},
		"1.3":              {nodeserver.TLS{MinVersion: "VersionTLS13"}, &tls.Config{}, false},
		"other suite": {
			nodeserver.TLS{CipherSuites: []string{"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}},
			&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}, true,
		},
		"same suite": {
			nodeserver.TLS{CipherSuites: []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}},
			&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}, false,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := newConfig(t)
			test.server.GetCertificate = config.TLS.GetCertificate
			config.TLS = test.server
			address, _ := serve(t, newServer(t, config))
			test.client.InsecureSkipVerify = true
			dialer := tls.Dialer{Config: test.client}
			conn, err := dialer.DialContext(t.Context(), "tcp", address)
			if err == nil {
				_ = conn.Close()
			}
			if (err != nil) != test.isRejected {
				t.Errorf("got error %v, want one: %v", err, test.isRejected)
			}
		})
	}
	for _, wrong := range []nodeserver.TLS{{MinVersion: "1.2"}, {CipherSuites: []string{"x"}}} {
		config := newConfig(t)
		wrong.GetCertificate = config.TLS.GetCertificate
		config.TLS = wrong
		if _, err := nodeserver.New(config); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}

// Streams that occupy all their places leave those of short requests, and one user's leave places for another.
func TestSRV8_StreamsAndShortRequests(t *testing.T) {
	config := newConfig(t)
	config.Containers = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	s := newServer(t, config)
	nodeserver.SetLimits(s, 4)
	address, _ := serve(t, s)
	client := newClient(t, false)
	follow := func(user string) int {
		response := get(t, client, "https://"+address+"/containerLogs/a/b/c?follow=true", user)
		t.Cleanup(func() { _ = response.Body.Close() })
		return response.StatusCode
	}
	for i, want := range []int{200, 200, 200, 429} {
		if got := follow("greedy"); got != want {
			t.Errorf("stream %d of one user: got %d, want %d", i+1, got, want)
		}
	}
	if got := follow("other"); got != http.StatusOK {
		t.Errorf("stream of another user: got %d", got)
	}
	if got := follow("third"); got != http.StatusTooManyRequests {
		t.Errorf("stream beyond the limit: got %d", got)
	}
	response := get(t, client, "https://"+address+"/healthz", "greedy")
	defer response.Body.Close()
	if got := readAll(t, response); got != "ok" {
		t.Errorf("short request: got %q", got)
	}
}

// The end of the server ends streams, which may still say so to their clients.
func TestSRV9_Shutdown(t *testing.T) {
	config := newConfig(t)
	config.Containers = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		_, _ = io.WriteString(w, "the server ends")
	})
	for name, isHTTP1 := range map[string]bool{"HTTP/1.1": true, "HTTP/2": false} {
		t.Run(name, func(t *testing.T) {
			address, stop := serve(t, newServer(t, config))
			response := get(t, newClient(t, isHTTP1), "https://"+address+"/containerLogs/a/b/c?follow=true", "u")
			defer response.Body.Close()
			go stop()
			if got := readAll(t, response); got != "the server ends" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestSRV35_HealthServer(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	server := &nodeserver.HealthServer{Address: address, Health: nodeserver.NewHealth(), Logger: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Run(ctx)
	}()
	_ = taken.Close()
	heraldtest.Eventually(t, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
	cancel()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}
