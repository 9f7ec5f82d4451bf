package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/auth"
	"github.com/heraldnode/herald/certificate"
	"github.com/heraldnode/herald/nodeserver"
	"github.com/heraldnode/herald/observed"
)

// ServerConfig configures the kubelet's servers.
type ServerConfig struct {
	// Address is that of the HTTPS server, like 0.0.0.0:10250. Empty means none.
	Address string
	// HealthAddress is that of the health server, like 127.0.0.1:10248. Empty means none.
	HealthAddress string
	// CertFile and KeyFile have the serving certificate and are reloaded when they change. Default to a certificate that the agent makes.
	CertFile, KeyFile string
	// MinVersion and CipherSuites are those of nodeserver.TLS.
	MinVersion   string
	CipherSuites []string
	// ClientCAFile has the authorities of client certificates and is reloaded when it changes. Defaults to none.
	ClientCAFile string
	// Auth says who may do what. The agent sets NodeName, API, ClientCAs, Logger and Metrics.
	Auth auth.Config
	// Debugging switches handlers off.
	Debugging nodeserver.Debugging
	// Configz returns the configuration as a KubeletConfiguration. Nil disables /configz.
	Configz func() ([]byte, error)
	// Metrics and ProbeMetrics serve /metrics and /metrics/probes. Nil disables the path.
	Metrics, ProbeMetrics http.Handler
	// Requests counts the requests. Nil counts none.
	Requests *nodeserver.RequestMetrics
}

// port returns the port of the HTTPS server, or 0.
func (c *ServerConfig) port() int32 {
	_, text, err := net.SplitHostPort(c.Address)
	if err != nil {
		return 0
	}
	port, _ := strconv.ParseUint(text, 10, 16)
	return int32(port)
}

// servers are the kubelet's servers. A server that is not configured is nil.
type servers struct {
	// Containers serves logs and streams of containers without authentication, see nodeserver.NewContainerHandler.
	Containers http.Handler
	https      *nodeserver.Server
	health     *nodeserver.HealthServer
}

func (n *NodeAgent) newServers() error {
	n.Containers = nodeserver.NewContainerHandler(nodeserver.ContainerConfig{
		Pods: podsByName{n.Agent}, Logs: n.Logs, Streams: n.Streams, Logger: n.config.Logger,
	})
	checks := []nodeserver.Check{{Name: "syncloop", Check: n.checkSyncLoop}}
	if n.config.Server.Address != "" {
		if err := n.newHTTPSServer(nodeserver.NewHealth(checks...)); err != nil {
			return fmt.Errorf("node server: %w", err)
		}
		checks = append(checks, nodeserver.Check{Name: "https", Check: n.https.Listening})
	}
	if n.config.Server.HealthAddress != "" {
		n.health = &nodeserver.HealthServer{
			Address: n.config.Server.HealthAddress, Health: nodeserver.NewHealth(checks...), Logger: n.config.Logger,
		}
	}
	return nil
}

func (n *NodeAgent) newHTTPSServer(health *nodeserver.Health) error {
	config := n.config.Server
	tls := nodeserver.TLS{MinVersion: config.MinVersion, CipherSuites: config.CipherSuites}
	serving, err := n.newServingCertificate()
	if err != nil {
		return err
	}
	tls.GetCertificate = serving.GetCertificate
	authConfig := config.Auth
	authConfig.NodeName, authConfig.Logger, authConfig.Metrics = n.config.NodeName, n.config.Logger, n.config.Metrics
	if config.ClientCAFile != "" {
		authorities := certificate.NewCAFile(config.ClientCAFile, n.config.Logger)
		authConfig.ClientCAs, tls.ClientCAs = authorities, authorities.Current
	}
	if n.config.API != nil { // a client of its own: nobody waits for the agent's requests to be let in
		if authConfig.API, err = n.newClient(n.config.separateLimits()); err != nil {
			return err
		}
	}
	filter, err := auth.New(authConfig)
	if err != nil {
		return err
	}
	resources := prometheus.NewRegistry()
	resources.MustRegister(n.ResourceMetrics())
	n.https, err = nodeserver.New(nodeserver.Config{
		Address: config.Address, TLS: tls, Require: filter.Require, UserOf: userOf, Agent: n.Agent, RunningPods: n.runningPods,
		Summarizer: n, Containers: n.Containers, Configz: config.Configz, Health: health, Debugging: config.Debugging,
		Metrics: nodeserver.Metrics{
			Agent: config.Metrics, Probes: config.ProbeMetrics, Resource: promhttp.HandlerFor(resources, promhttp.HandlerOpts{}),
		},
		Requests: config.Requests, Logger: n.config.Logger,
	})
	return err
}

func userOf(ctx context.Context) string {
	user, _ := auth.UserFrom(ctx)
	return user.Name
}

// runServers runs the servers until ctx ends.
func (n *NodeAgent) runServers(ctx context.Context) {
	var running sync.WaitGroup
	if n.https != nil {
		running.Go(func() { _ = n.https.Run(ctx) })
	}
	if n.health != nil {
		running.Go(func() { _ = n.health.Run(ctx) })
	}
	running.Wait()
}

// minSyncLoopAge is the least time after which a sync loop that does not turn is unhealthy.
const minSyncLoopAge = 5 * time.Minute

// checkSyncLoop returns an error if pods have not been synced for long: the loop is blocked, or the runtime is not ready.
func (n *NodeAgent) checkSyncLoop() error {
	limit := max(minSyncLoopAge, 2*n.config.SyncFrequency)
	if last := n.Agent.LastTurn(); !last.IsZero() && time.Since(last) > limit {
		return errors.New("sync Loop took longer than expected")
	}
	if runtime := n.Agent.RuntimeHealth(); runtime.Err != nil && !runtime.Since.IsZero() && time.Since(runtime.Since) > limit {
		return runtime.Err
	}
	return nil
}

// podsByName finds pods with their local statuses.
type podsByName struct{ agent *agent.Agent }

// GetPodByName implements nodeserver.Pods.
func (p podsByName) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	return p.agent.LocalPodByName(namespace, name)
}

// runningPods returns the pods with a sandbox or a container that runs, as the runtime knows them.
func (n *NodeAgent) runningPods(ctx context.Context) ([]*v1.Pod, error) {
	pods, err := n.runtime.ListPods(ctx)
	if err != nil {
		return nil, err
	}
	var running []*v1.Pod
	for _, pod := range pods {
		if converted, isRunning := runningPod(pod); isRunning {
			running = append(running, converted)
		}
	}
	return running, nil
}

func runningPod(pod *observed.Pod) (_ *v1.Pod, isRunning bool) {
	converted := &v1.Pod{}
	converted.UID, converted.Name, converted.Namespace = types.UID(pod.UID), pod.Name.Name, pod.Name.Namespace
	for i := range pod.Sandboxes {
		isRunning = isRunning || pod.Sandboxes[i].Ready
	}
	for i := range pod.Containers {
		if container := &pod.Containers[i]; container.State == observed.Running {
			isRunning = true
			converted.Spec.Containers = append(converted.Spec.Containers, v1.Container{Name: container.Name, Image: container.Image.Name})
		}
	}
	return converted, isRunning
}
