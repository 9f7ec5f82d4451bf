package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/heraldnode/herald/cmd/herald/internal/config"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/podsapi"
	"github.com/heraldnode/herald/server"
)

// newPodsAPI returns the server of the kubelet's Pods API.
func newPodsAPI(c *config.Config, node *nodeagent.NodeAgent, logger *slog.Logger) (*podsapi.Server, error) {
	socket := c.PodsAPISocket()
	return podsapi.New(podsapi.Config{
		Agent: node.Agent, Ready: node.Agent.Sources.AllReady, Logger: logger,
		Listen: func(ctx context.Context) (net.Listener, error) {
			if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
				return nil, fmt.Errorf("create the socket's directory: %w", err)
			}
			return server.Listen(ctx, "unix://"+socket)
		},
	})
}
