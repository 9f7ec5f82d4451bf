package nodeagent

import (
	"context"
	"net"
	"time"

	"github.com/heraldnode/herald/stream"
)

// endStreamsTimeout is how long clients may take to receive the last status of their streams.
const endStreamsTimeout = 2 * time.Second

func (n *NodeAgent) newStreams() (err error) {
	config := stream.Config{Runtime: n.runtime, Pod: n.Agent.LocalPodByName, PodCache: n.Agent.PLEG, Logger: n.config.Logger}
	if n.server != nil {
		config.Dial = dialSocket(n.server.StreamSocket())
	}
	n.Streams, err = stream.New(config)
	return err
}

// dialSocket returns a function that connects to the socket, whatever the address.
func dialSocket(path string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", path)
	}
}

// endStreams tells the clients of open streams that the agent ends (SRV-9).
func (n *NodeAgent) endStreams() {
	ctx, cancel := context.WithTimeout(context.Background(), endStreamsTimeout)
	defer cancel()
	if err := n.Streams.Shutdown(ctx); err != nil {
		n.config.Logger.Debug("Streams did not end in time", "err", err)
	}
}

// features returns the declared features of the HTTPS server: it ends the web sockets of exec, attach and port-forward by itself.
func (c *ServerConfig) features() []string {
	if c.port() == 0 {
		return nil
	}
	return []string{"ExtendWebSocketsToKubelet"}
}
