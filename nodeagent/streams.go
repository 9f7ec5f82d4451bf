package nodeagent

import (
	"context"
	"time"

	"github.com/heraldnode/herald/stream"
)

// endStreamsTimeout is how long clients may take to receive the last status of their streams.
const endStreamsTimeout = 2 * time.Second

// newStreams creates what serves the logs and streams of containers.
func (n *NodeAgent) newStreams() (err error) {
	if err := n.newLogs(); err != nil {
		return err
	}
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
