package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// serveTLS has a certificate that nobody vouches for, as most that are probed.
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

// serveTCP keeps the port open while the answer is well.
func serveTCP(address string, a *answer) error {
	for {
		code, changed := a.now()
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
				code, changed = a.now()
			}
			_ = listener.Close()
		}()
		welcome(listener)
	}
}

// welcome takes connections until the listener is closed.
func welcome(listener net.Listener) {
	for {
		visitor, err := listener.Accept()
		if err != nil {
			return
		}
		_ = visitor.Close()
	}
}

func serveHealth(address string, a *answer) error {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	state, server := health.NewServer(), grpc.NewServer()
	healthv1.RegisterHealthServer(server, state)
	go func() {
		for {
			code, changed := a.now()
			status := healthv1.HealthCheckResponse_SERVING
			if code >= http.StatusBadRequest {
				status = healthv1.HealthCheckResponse_NOT_SERVING
			}
			state.SetServingStatus("", status)
			<-changed
		}
	}()
	return server.Serve(listener)
}
