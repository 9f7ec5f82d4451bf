package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/heraldnode/herald/assembly"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/server"
)

func newRun() *cobra.Command {
	given := defaults()
	var file string
	run := &cobra.Command{
		Use: "run", Short: "Runs this machine's pods", Args: cobra.NoArgs,
		Long: `Runs the pods that a folder of manifests, a URL and an API server want on this machine, in the container runtime that it has,
and reports how they are. Without --kubeconfig it needs no cluster. Ending it leaves the containers running; the next
'herald run' on the same data folder finds them and goes on.

Every flag is also a field of the configuration file, and wins over it:

  apiVersion: ` + configVersion + `
  kind: ` + configKind + `
  staticPodPath: /etc/kubernetes/manifests`,
		Example: `  herald run --manifests /etc/kubernetes/manifests
  herald run --node-name n1 --kubeconfig /etc/kubernetes/kubelet.conf
  herald run --runtime=process --manifests ./pods --data-dir ./state`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config := defaults()
			if file != "" {
				if err := config.read(file); err != nil {
					return err
				}
			}
			overlay(cmd.Flags(), &config, &given)
			return runMachine(cmd.Context(), cmd.ErrOrStderr(), config)
		},
	}
	run.Flags().StringVar(&file, "config", "", "configuration file")
	bind(run.Flags(), &given)
	return run
}

// bind makes flags of the configuration.
func bind(flags *pflag.FlagSet, c *Config) {
	flags.StringVar(&c.NodeName, "node-name", c.NodeName, "name of this node")
	flags.StringVar(&c.Kubeconfig, "kubeconfig", "", "how to reach the API server; without it the node is alone")
	flags.StringVar(&c.StaticPodPath, "manifests", "", "folder of manifests of static pods, or one manifest")
	flags.StringVar(&c.StaticPodURL, "manifest-url", "", "URL of manifests of static pods")
	flags.StringVar(&c.Runtime, "runtime", c.Runtime, "cri: containerd or CRI-O; process: plain processes, no isolation at all")
	flags.StringVar(&c.ContainerRuntimeEndpoint, "runtime-endpoint", "", "socket of the runtime (default: containerd's)")
	flags.BoolVar(&c.AllowAPIPods, "allow-api-pods", false, "let --runtime=process run pods of the API server too")
	flags.StringVar(&c.DataDir, "data-dir", c.DataDir, "folder of all that must survive the agent")
	flags.StringVar(&c.Listen, "listen", "", "where to answer 'herald get': unix:///path or 127.0.0.1:port (default: "+defaultListen+
		", or herald.sock in another --data-dir)")
	flags.IntVarP(&c.Logging.Verbosity, "verbosity", "v", 0, "0: what an operator should see, 4: everything")
}

// overlay takes over the flags that were given: they win over the file.
func overlay(flags *pflag.FlagSet, config, given *Config) {
	for name, set := range map[string]func(){
		"node-name":        func() { config.NodeName = given.NodeName },
		"kubeconfig":       func() { config.Kubeconfig = given.Kubeconfig },
		"manifests":        func() { config.StaticPodPath = given.StaticPodPath },
		"manifest-url":     func() { config.StaticPodURL = given.StaticPodURL },
		"runtime":          func() { config.Runtime = given.Runtime },
		"runtime-endpoint": func() { config.ContainerRuntimeEndpoint = given.ContainerRuntimeEndpoint },
		"allow-api-pods":   func() { config.AllowAPIPods = given.AllowAPIPods },
		"data-dir":         func() { config.DataDir = given.DataDir },
		"listen":           func() { config.Listen = given.Listen },
		"verbosity":        func() { config.Logging.Verbosity = given.Logging.Verbosity },
	} {
		if flags.Changed(name) {
			set()
		}
	}
}

func newLogger(out io.Writer, c logging) (*slog.Logger, error) {
	level := slog.LevelInfo
	if c.Verbosity >= 4 {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	switch c.Format {
	case "text":
		return slog.New(slog.NewTextHandler(out, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, options)), nil
	default:
		return nil, usage("logging.format is %q: want text or json", c.Format)
	}
}

func runMachine(ctx context.Context, stderr io.Writer, c Config) error {
	logger, err := newLogger(stderr, c.Logging)
	if err != nil {
		return err
	}
	klog.SetLogger(logr.FromSlogHandler(logger.Handler())) // client-go speaks through klog
	config, err := c.assembly()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	config.Logger, config.Metrics, config.Version = logger, registry, version()
	m, err := assembly.New(config)
	if err != nil {
		return explain(err)
	}
	if err := m.CheckRuntime(ctx); err != nil {
		return errors.Join(err, m.Close())
	}
	listener, err := listen(ctx, c.listenAddress())
	if err != nil {
		return errors.Join(failure{err, exitUsage}, m.Close())
	}
	return serve(ctx, logger, m, registry, listener)
}

// explain adds the remedy to an error that has one.
func explain(err error) error {
	var locked *checkpoint.LockedError
	if errors.As(err, &locked) {
		return fmt.Errorf("%w\nAnother agent uses this data folder: end it, or give this one its own with --data-dir", err)
	}
	return err
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	if path, isSocket := strings.CutPrefix(address, "unix://"); isSocket {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return nil, fmt.Errorf("make the folder of the socket: %w", err)
		}
	}
	return server.Listen(ctx, address)
}

// serve runs the node and answers questions about it.
func serve(ctx context.Context, logger *slog.Logger, m *assembly.Node, metrics *prometheus.Registry, at net.Listener) error {
	s, err := server.New(server.Config{
		Node: m.Agent, Metrics: promhttp.HandlerFor(metrics, promhttp.HandlerOpts{Registry: metrics}), Logger: logger,
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
	logger.Info("Herald runs this machine's pods", "version", version(), "listen", at.Addr().String())
	err = m.Run(ctx)
	stop()
	answers.Wait()
	logger.Info("Herald has ended; the containers live on", "ran", time.Since(began).Round(time.Second))
	return err
}
