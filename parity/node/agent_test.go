package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/provision"
	"github.com/heraldnode/herald/source"
)

// agentSettings makes an agent of this test binary: a process that can be killed. The variable has an agentConfig.
const agentSettings = "HERALD_NODE_AGENT"

type agentConfig struct {
	Node, Kubeconfig, Endpoint string
	// Pods and Logs are folders of the machine, State and Manifests the agent's own.
	Pods, Logs, State, Manifests string
	CgroupParent                 string
	Address                      netip.Addr
}

// beAgent runs an agent until SIGTERM, and returns its exit code.
func beAgent(settings string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := runAgent(ctx, settings); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 1
	}
	return 0
}

func runAgent(ctx context.Context, settings string) error {
	var c agentConfig
	if err := json.Unmarshal([]byte(settings), &c); err != nil {
		return err
	}
	client, err := connect(c)
	if err != nil {
		return err
	}
	events, err := event.New(event.Config{NodeName: c.Node, Scheme: kubeapi.NewScheme(), API: client})
	if err != nil {
		return err
	}
	config := agent.Config{
		NodeName: c.Node, API: client, Events: events, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Node: func() derive.Node { return derive.Node{HostIPs: []netip.Addr{c.Address}} },
	}
	runtime, err := equip(&config, c)
	if err != nil {
		return err
	}
	defer runtime.Close()
	a, err := agent.New(config)
	if err != nil {
		return err
	}
	return beside(ctx, events.Run, a.Run)
}

func connect(c agentConfig) (*kubeapi.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return kubeapi.New(config)
}

// equip gives the agent its sources, its folders and the machine's containerd.
func equip(config *agent.Config, c agentConfig) (*cri.Runtime, error) {
	volumes, err := provision.New(provision.Config{
		Root: c.Pods, Objects: config.API, Events: config.Events, Logger: config.Logger,
		Node: func() provision.Facts { return provision.Facts{HostIPs: []netip.Addr{c.Address}} },
	})
	if err != nil {
		return nil, err
	}
	runtime, err := cri.New(cri.Config{
		Endpoint: c.Endpoint, Provision: volumes, Events: config.Events, Root: c.Pods, LogDir: c.Logs, Logger: config.Logger,
		CgroupParent: c.CgroupParent, NodeIPs: func() []netip.Addr { return []netip.Addr{c.Address} },
		ClusterDNS: []netip.Addr{clusterDNS}, ClusterDomain: clusterDomain,
	})
	if err != nil {
		return nil, err
	}
	files, err := source.NewFile(source.FileConfig{Path: c.Manifests, Node: c.Node})
	if err != nil {
		return nil, err
	}
	api, err := source.NewAPI(source.APIConfig{ListerWatcher: config.API.PodsOnNode(c.Node), Node: c.Node})
	if err != nil {
		return nil, err
	}
	config.Runtime, config.Volumes, config.Sources = runtime, volumes, []source.Source{files, api}
	config.Admit = runtime.Unsupported
	config.State, err = checkpoint.Open(c.State, checkpoint.Options{})
	return runtime, err
}

// beside runs both until ctx and both have ended.
func beside(ctx context.Context, helper, main func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	var both sync.WaitGroup
	var helped error
	both.Go(func() { helped = helper(ctx) })
	err := main(ctx)
	stop()
	both.Wait()
	if errors.Is(helped, context.Canceled) {
		helped = nil
	}
	return errors.Join(err, helped)
}
