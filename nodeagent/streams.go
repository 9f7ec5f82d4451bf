package nodeagent

import (
	"context"
	"time"

	"github.com/heraldnode/herald/stream"
)

// endStreamsTimeout is how long clients may take to receive the last status of their streams.
const endStreamsTimeout = 2 * time.Second

func (n *NodeAgent) newStreams() (err error) {
	n.Streams, err = stream.New(stream.Config{
		Runtime: n.runtime, Pod: n.Agent.LocalPodByName, PodCache: n.Agent.PLEG, Logger: n.config.Logger,
	})
	return err
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
