package nodeserver

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
)

// HealthServer serves /healthz without TLS and authentication, for local clients like kubeadm (SRV-35).
type HealthServer struct {
	// Address is where to listen, like 127.0.0.1:10248.
	Address string
	Health  *Health
	Logger  *slog.Logger

	bindErr atomic.Pointer[error]
}

// Run listens and serves until ctx ends. An address that is taken is tried again.
func (s *HealthServer) Run(ctx context.Context) error {
	log := s.Logger.With("address", s.Address)
	connections := newPool(maxShort)
	retry(ctx, log, "health server", &s.bindErr, func(ctx context.Context) error {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Address)
		if err != nil {
			return err
		}
		log.Debug("Serving health", "listening", listener.Addr().String())
		s.bindErr.Store(nil)
		return serve(ctx, limitListener{listener, connections}, s.Health.Handler(), s.Logger, func() int { return 0 })
	})
	return nil
}
