package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/cmd/herald/internal/config"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/server"
)

func newRun() *cobra.Command {
	var from configuration
	run := &cobra.Command{
		Use: "run", Short: "Runs this machine's pods", Args: noArguments,
		Long: `Runs the pods that a folder of manifests, a URL and an API server want on this machine, in the container runtime that it has,
and reports how they are. Without --kubeconfig it needs no cluster. SIGTERM or Ctrl-C ends it and leaves the containers
running; the next 'herald run' on the same data folder finds them and goes on.

Every flag is also a field of the configuration file, and wins over it; 'herald help config' lists them.`,
		Example: `  # The pods of a folder, in containerd.
  sudo herald run --manifests /etc/kubernetes/manifests

  # A node of a cluster.
  sudo herald run --node-name n1 --kubeconfig /etc/kubernetes/kubelet.conf

  # Without root and containers: plain processes, for manifests that say 'image: host'.
  herald run --runtime=process --manifests ./pods --data-dir ./state
  herald get pods --server unix://$PWD/state/herald.sock

  # As a service; systemd is told when it runs (Type=notify).
  herald run --config /etc/herald/config.yaml --config-dir /etc/herald/config.d`,
	}
	from.bind(run)
	run.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := from.load()
		if err != nil {
			return err
		}
		ctx, stop := untilSignal(cmd.Context())
		defer stop()
		context.AfterFunc(ctx, stop) // a second signal ends it at once
		defer surviveLostReaders()()
		return runNode(ctx, cmd.ErrOrStderr(), &c)
	}
	return run
}

// surviveLostReaders keeps the agent alive when nobody reads its log any more, as when journald is restarted. What it starts
// does not inherit that, which it would if the signal were ignored.
func surviveLostReaders() (stop func()) {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGPIPE)
	return func() { signal.Stop(ignored) }
}

func newLogger(out io.Writer, c config.Logging) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	if c.Verbosity >= 4 {
		options.Level = slog.LevelDebug
	}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

func runNode(ctx context.Context, stderr io.Writer, c *config.Config) error {
	settings, err := c.Assembly()
	if err != nil {
		return usageError{err}
	}
	logger := newLogger(stderr, c.Logging)
	klog.SetLogger(logr.FromSlogHandler(logger.Handler())) // client-go speaks through klog
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	settings.Logger, settings.Metrics, settings.Version = logger, registry, version()
	err = nodeagent.CheckRuntime(ctx, settings) // before anything is made
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was asked to end before it had begun
	}
	if err != nil {
		return err
	}
	node, err := nodeagent.New(settings)
	if err != nil {
		return explain(err)
	}
	listener, err := listen(ctx, c.ListenAddress())
	if err != nil {
		return errors.Join(err, node.Close())
	}
	return serve(ctx, logger, node, registry, listener)
}

// explain adds the remedy to an error that has one.
func explain(err error) error {
	var locked *checkpoint.LockedError
	switch {
	case errors.As(err, &locked):
		return fmt.Errorf("%w\nAnother agent uses this data folder: end it, or give this one its own with --data-dir", err)
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return fmt.Errorf("%w\nRun it as root, or name a folder of your own with --data-dir", err)
	default:
		return err
	}
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	if path, isSocket := strings.CutPrefix(address, "unix://"); isSocket {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return nil, fmt.Errorf("make the folder of the socket: %w\nName another place with --listen", err)
		}
	}
	listener, err := server.Listen(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("%w\nName another place with --listen", err)
	}
	return listener, nil
}

// serve runs the node and answers questions about it.
func serve(ctx context.Context, logger *slog.Logger, node *nodeagent.NodeAgent, metrics *prometheus.Registry, at net.Listener) error {
	s, err := server.New(server.Config{
		Agent: node.Agent, Metrics: promhttp.HandlerFor(metrics, promhttp.HandlerOpts{Registry: metrics}), Logger: logger,
	})
	if err != nil {
		return err
	}
	answering, stop := context.WithCancel(context.WithoutCancel(ctx))
	var answers sync.WaitGroup
	answers.Go(func() {
		if err := s.Serve(answering, at); err != nil {
			logger.Error("Questions cannot be answered any more", "err", err)
		}
	})
	began := time.Now()
	running, ended := context.WithCancel(ctx)
	answers.Go(func() { tellSystemd(running, logger, node.Started()) })
	logger.Info("Herald runs this machine's pods", "version", version(), "listen", at.Addr().String())
	err = node.Run(ctx)
	ended()
	stop()
	answers.Wait()
	logger.Info("Herald has ended; the containers live on", "ran", time.Since(began).Round(time.Second))
	return err
}
