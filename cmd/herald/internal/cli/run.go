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

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/cmd/herald/internal/config"
	"github.com/heraldnode/herald/localapi"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/server"
)

func newRunCommand() *cobra.Command {
	var flags configFlags
	run := &cobra.Command{
		Use: "run", Short: "Run the node agent", GroupID: groupRun, Args: noArguments,
		Long: `Run the pods that a manifest directory, a URL and an API server assign to this machine, and report their status.
Without --kubeconfig no cluster is needed.

On SIGTERM or Ctrl-C the agent exits and leaves the containers running. The next 'herald run' with the same data
directory adopts them.

Every flag is also a field of the configuration file and overrides it. See 'herald help config' for all fields.`,
		Example: `  # Run the pods of a manifest directory in containerd.
  sudo herald run --manifests /etc/kubernetes/manifests

  # Run as a node of a cluster.
  sudo herald run --node-name n1 --kubeconfig /etc/kubernetes/kubelet.conf

  # Run manifests with 'image: host' as host processes, without root and containers.
  herald run --runtime=process --manifests ./pods --data-dir ./state
  herald get pods --server unix://$PWD/state/herald.sock

  # Run as a systemd service (Type=notify).
  herald run --config /etc/herald/config.yaml --config-dir /etc/herald/config.d`,
	}
	flags.bind(run)
	run.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.load()
		if err != nil {
			return err
		}
		ctx, stop := withSignals(cmd.Context())
		defer stop()
		context.AfterFunc(ctx, stop) // a second signal ends the process at once
		defer catchSIGPIPE()()
		return runNode(ctx, cmd.ErrOrStderr(), &c)
	}
	return run
}

// catchSIGPIPE keeps the agent alive when its log is closed, as when journald restarts. The signal is caught, not ignored,
// because child processes inherit ignored signals.
func catchSIGPIPE() (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE)
	return func() { signal.Stop(signals) }
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
	nodeConfig, err := c.NodeAgentConfig()
	if err != nil {
		return usageError{err}
	}
	logger := newLogger(stderr, c.Logging)
	klog.SetLogger(logr.FromSlogHandler(logger.Handler())) // client-go logs to klog
	metrics, err := newMetrics()
	if err != nil {
		return err
	}
	nodeConfig.Logger, nodeConfig.Version = logger, version()
	nodeConfig.Metrics, nodeConfig.ProbeMetrics = metrics.agent, metrics.probes
	nodeConfig.Server.Metrics, nodeConfig.Server.ProbeMetrics = handlerOf(metrics.agent), handlerOf(metrics.probes)
	nodeConfig.Server.Requests = metrics.requests
	err = nodeagent.CheckRuntime(ctx, nodeConfig) // before New creates files
	if ctx.Err() != nil {
		return nil //nolint:nilerr // a signal during startup is not a failure
	}
	if err != nil {
		return err
	}
	node, err := nodeagent.New(nodeConfig)
	if err != nil {
		return addRemedy(err)
	}
	listener, err := listen(ctx, c.ListenAddress())
	if err != nil {
		return errors.Join(err, node.Close())
	}
	kubectl, err := newKubectlServer(ctx, c, node, logger)
	if err != nil {
		return errors.Join(err, listener.Close(), node.Close())
	}
	localServer, err := newLocalServer(c, node, metrics, logger)
	if err != nil {
		return errors.Join(err, listener.Close(), node.Close())
	}
	servers := []func(context.Context) error{
		func(ctx context.Context) error { return localServer.Serve(ctx, listener) }, kubectl.run,
	}
	if c.PodsAPI {
		podsAPI, err := newPodsAPI(c, node, logger)
		if err != nil {
			return errors.Join(err, listener.Close(), node.Close())
		}
		servers = append(servers, podsAPI.Run)
	}
	return serve(ctx, logger, node, servers...)
}

// newLocalServer returns the server of the query API. A socket has the credentials of its clients; over TCP, requests that change
// something need the owner's token.
func newLocalServer(
	c *config.Config, node *nodeagent.NodeAgent, metrics *metrics, logger *slog.Logger,
) (*server.Server, error) {
	resources := prometheus.NewRegistry()
	resources.MustRegister(node.ResourceMetrics())
	serverConfig := server.Config{
		Agent: node.Agent, History: node.History, Inspector: node.Inspector, Loads: node.Inspector, Operator: node.Inspector,
		Metrics: handlerOf(metrics.agent), ProbeMetrics: handlerOf(metrics.probes), ResourceMetrics: handlerOf(resources),
		Summarizer: node, Containers: node.Containers, Requests: metrics.requests, Logger: logger,
	}
	if node.Alerts != nil {
		serverConfig.Alerting, serverConfig.Actions = node.Alerts, node.Actions
	}
	if !strings.HasPrefix(c.ListenAddress(), "unix://") {
		credentials, err := localapi.CreateCredentials(c.KubectlDir())
		if err != nil {
			return nil, err
		}
		serverConfig.Token = credentials.Token
	}
	return server.New(serverConfig)
}

// addRemedy appends a remedy to errors that have one.
func addRemedy(err error) error {
	var locked *checkpoint.LockedError
	switch {
	case errors.As(err, &locked):
		return fmt.Errorf("%w\nAnother agent uses this data directory: stop it, or use another directory with --data-dir", err)
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return fmt.Errorf("%w\nRun as root, or use a directory of your own with --data-dir", err)
	default:
		return err
	}
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	if path, isSocket := strings.CutPrefix(address, "unix://"); isSocket {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return nil, fmt.Errorf("create the socket's directory: %w\nUse another address with --listen", err)
		}
	}
	listener, err := server.Listen(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("%w\nUse another address with --listen", err)
	}
	return listener, nil
}

// serve runs the node agent and its local servers until ctx ends. The servers stop after the agent.
func serve(
	ctx context.Context, logger *slog.Logger, node *nodeagent.NodeAgent, servers ...func(context.Context) error,
) error {
	serverCtx, stopServer := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	for _, run := range servers {
		background.Go(func() {
			if err := run(serverCtx); err != nil {
				logger.Error("Local server failed", "err", err)
			}
		})
	}
	started := time.Now()
	notifyCtx, stopNotify := context.WithCancel(ctx)
	background.Go(func() { notifySystemd(notifyCtx, logger, node.Started()) })
	logger.Info("Starting node agent", "version", version())
	err := node.Run(ctx)
	stopNotify()
	stopServer()
	background.Wait()
	logger.Info("Node agent stopped; containers keep running", "uptime", time.Since(started).Round(time.Second))
	return err
}

// notifySystemd reports READY=1 when the agent has started and STOPPING=1 when ctx ends. It does nothing outside a systemd
// service of Type=notify.
func notifySystemd(ctx context.Context, logger *slog.Logger, started <-chan struct{}) {
	notify := func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			logger.Warn("Failed to notify systemd", "state", state, "err", err)
		}
	}
	select {
	case <-started:
		notify(daemon.SdNotifyReady)
	case <-ctx.Done():
	}
	<-ctx.Done()
	notify(daemon.SdNotifyStopping)
}
