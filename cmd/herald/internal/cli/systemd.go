package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
)

// notifyVariable names the socket on which systemd, or who does as it does, hears how a service of Type=notify is.
const notifyVariable = "NOTIFY_SOCKET"

// tellSystemd says that the agent is ready when it has started, and that it stops when ctx ends, if anybody wants to know.
func tellSystemd(ctx context.Context, logger *slog.Logger, started <-chan struct{}) {
	socket := os.Getenv(notifyVariable)
	if socket == "" {
		return
	}
	tell := func(state string) {
		if err := notify(context.WithoutCancel(ctx), socket, state); err != nil {
			logger.Warn("systemd cannot be told how the service is", "state", state, "err", err)
		}
	}
	select {
	case <-started:
		tell("READY=1")
	case <-ctx.Done():
	}
	<-ctx.Done()
	tell("STOPPING=1")
}

func notify(ctx context.Context, socket, state string) error {
	connection, err := new(net.Dialer).DialContext(ctx, "unixgram", socket) // a leading @ is an abstract name here too
	if err != nil {
		return fmt.Errorf("open %s: %w", socket, err)
	}
	defer connection.Close()
	_, err = connection.Write([]byte(state))
	return err
}
