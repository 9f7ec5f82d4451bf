package nodeserver

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = time.Minute // of the whole request; streams have none
	writeTimeout      = time.Minute // per short response, and per write of a stream
	// containerWriteTimeout is longer because people page through logs. A client that never reads occupies a place until then.
	containerWriteTimeout = 30 * time.Minute
	idleTimeout           = 90 * time.Second
	maxHeaderBytes        = 1 << 20
	// shutdownTimeout bounds the wait for requests and streams that are told to end.
	shutdownTimeout = 2 * time.Second
	// firstRetry is the delay after the first failure to listen; it doubles up to lastRetry.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Run listens and serves until ctx ends. An address that is taken, or a listener that fails, is tried again: the pods of a node do not
// depend on its server (SRV-1). Requests and streams that are open when ctx ends are canceled and have shutdownTimeout to tell their
// clients (SRV-9).
func (s *Server) Run(ctx context.Context) error {
	if version := s.config.TLS.config().MinVersion; version == tls.VersionTLS13 && len(s.config.TLS.CipherSuites) > 0 {
		s.config.Logger.Warn("Cipher suites have no effect with TLS 1.3")
	}
	log := s.config.Logger.With("address", s.config.Address)
	retry(ctx, log, "HTTPS server", &s.bindErr, func(ctx context.Context) error {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.config.Address)
		if err != nil {
			return err
		}
		log.Info("Serving HTTPS", "listening", listener.Addr().String())
		s.bindErr.Store(nil)
		return s.Serve(ctx, listener)
	})
	return nil
}

// retry calls serve until ctx ends, with a delay that doubles while it fails. It logs the first of several failures in a row, and keeps
// the last in failure while there is one.
func retry(ctx context.Context, logger *slog.Logger, name string, failure *atomic.Pointer[error], serve func(context.Context) error) {
	delay := firstRetry
	for ctx.Err() == nil {
		began := time.Now()
		err := serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the listener was closed")
		}
		if time.Since(began) > lastRetry { // it did serve
			delay = firstRetry
		}
		if failure.Swap(&err) == nil {
			logger.Error("Failed to serve; trying again until it succeeds", "server", name, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		delay = min(2*delay, lastRetry)
	}
}

// Serve serves the listener with TLS until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	// TLS is outermost: http.Server looks for it to speak HTTP/2.
	listener = tls.NewListener(limitListener{listener, s.limits.connections}, s.config.TLS.config())
	return serve(ctx, listener, s, s.config.Logger, s.limits.streams.inUse)
}

// serve serves the listener until ctx ends, and closes it. It waits until streams returns 0: http.Server does not know streams that have
// taken over their connections.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, logger *slog.Logger, streams func() int) error {
	requests, cancelRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelRequests()
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		BaseContext: func(net.Listener) context.Context { return requests },
		ErrorLog:    slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	cancelRequests() // streams do not end by themselves
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(shutdown); err != nil {
		_ = server.Close()
	}
	for streams() > 0 && shutdown.Err() == nil {
		select {
		case <-shutdown.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	<-served
	return nil
}
