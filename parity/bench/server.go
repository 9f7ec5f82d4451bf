package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/controlplane"
)

// compareServers compares the HTTPS servers of `herald run` and of the real kubelet. Both run at the same time, each with as many pods
// and a containerd of its own, and are called in turns with the same client and the certificate of kube-apiserver.
func compareServers(ctx context.Context, env *Environment) (results []Result, err error) {
	kubelet, herald, remove, err := env.buildAgents(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	err = env.withServer(ctx, kubelet, func(ctx context.Context, theirs *serverNode) error {
		return env.withServer(ctx, herald, func(ctx context.Context, ours *serverNode) error {
			results, err = env.measureServers(ctx, serverPair{theirs, ours})
			return err
		})
	})
	if err != nil {
		return results, fmt.Errorf("compare servers: %w", err)
	}
	return results, nil
}

// measureServers measures memory first: what comes later grows the heaps.
func (e *Environment) measureServers(ctx context.Context, pair serverPair) (results []Result, err error) {
	for _, measure := range []func(context.Context, ServerProfile) ([]Result, error){
		pair.compareFollowers, pair.compareLogs, pair.compareExecs, pair.compareRequests,
	} {
		measured, err := measure(ctx, e.Profile.Server)
		if err != nil {
			return results, err
		}
		results = append(results, measured...)
	}
	return results, nil
}

// serverNode is a node whose HTTPS server is measured. Its pods run.
type serverNode struct {
	*node
	agent *agents.Agent
	// cert and key are those of the client, as PEM.
	cert, key []byte
}

// withServer starts an agent with pods, measures, and removes everything again. The agent rotates no log.
func (e *Environment) withServer(ctx context.Context, program agents.Program, measure func(context.Context, *serverNode) error) error {
	const noRotation = `containerLogMaxSize: "100Gi"`
	return e.withConfiguredAgent(ctx, program, noRotation, func(ctx context.Context, n *node, agent *agents.Agent) error {
		events, _, err := n.watch(ctx)
		if err != nil {
			return err
		}
		defer events.Stop()
		time.Sleep(agentWarmUp)
		if n.pods, err = n.createPods(ctx, e.Profile.AgentPods, servingPod); err != nil {
			return err
		}
		ready := func(_ watch.EventType, p *v1.Pod) bool { return isReady(&p.Status) }
		if err := waitForPods(events, len(n.pods), "ready", ready); err != nil {
			return err
		}
		s := &serverNode{node: n, agent: agent}
		s.cert, s.key = e.ControlPlane.IssueClient(controlplane.Identity{User: controlplane.KubeletClientUser})
		return errors.Join(measure(ctx, s), n.deletePods(ctx, events))
	})
}

// newClient returns a client with connections of its own. Without http2 it uses HTTP/1.1, as the kubelet's server does in any case.
func (n *serverNode) newClient(http2 bool) (*http.Client, error) {
	pair, err := tls.X509KeyPair(n.cert, n.key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}} //nolint:gosec // the kubelet's has no addresses
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: http2}}, nil
}

// restConfig is the client of newClient for client-go.
func (n *serverNode) restConfig() *rest.Config {
	return &rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true, CertData: n.cert, KeyData: n.key}}
}

// get sends a request. The caller closes the body.
func (n *serverNode) get(ctx context.Context, client *http.Client, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+n.agent.HTTPSAddress()+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", path, response.Status)
		_ = response.Body.Close()
	}
	return response, err
}

// logPath returns the path on the server of the log of the first pod, and that of its file.
func (n *serverNode) logPath() (path, file string) {
	pod := n.pods[0]
	return "/containerLogs/" + pod.Namespace + "/" + pod.Name + "/main",
		filepath.Join(n.agent.LogsDir(), pod.Namespace+"_"+pod.Name+"_"+string(pod.UID), "main", "0.log")
}

// serverPair is the kubelet's node and Herald's.
type serverPair [2]*serverNode

// serverSample is a speed and the CPU time of the agent, in units of the measurement.
type serverSample struct{ speed, cpu float64 }

// alternate measures both nodes in alternating order.
func (p serverPair) alternate(rounds int, measure func(*serverNode) (serverSample, error)) (samples serverSamples, err error) {
	for round := range rounds {
		for i := range p {
			side := (i + round) % len(p)
			sample, err := measure(p[side])
			if err != nil {
				return samples, err
			}
			samples[side] = append(samples[side], sample)
		}
	}
	return samples, nil
}

// serverSamples are the samples of the kubelet and of Herald.
type serverSamples [2][]serverSample

func (s serverSamples) values(side int, of func(serverSample) float64) []float64 {
	var values []float64
	for _, sample := range s[side] {
		values = append(values, of(sample))
	}
	return values
}

// results returns the speeds, and the CPU times with the suffix _cpu.
func (s serverSamples) results(name, description, speedUnit, cpuUnit string) []Result {
	result := func(of func(serverSample) float64, format func(float64) string) Result {
		theirs, ours := s.values(0, of), s.values(1, of)
		return Result{Kubelet: format(median(theirs)), Herald: format(median(ours)), Value: ratio(ours, theirs)}
	}
	speed := result(func(s serverSample) float64 { return s.speed }, func(v float64) string { return fmt.Sprintf("%.0f %s", v, speedUnit) })
	speed.Name, speed.Description, speed.Goal = name, description+": Herald's speed divided by the kubelet's", AtLeast(1)
	cpu := result(func(s serverSample) float64 { return s.cpu }, func(v float64) string { return fmt.Sprintf("%.2f %s", v, cpuUnit) })
	cpu.Name, cpu.Description, cpu.Goal = name+"_cpu", "the same: CPU time of Herald divided by that of the kubelet", AtMost(1)
	return []Result{speed, cpu}
}

// cpuTimeOf returns the CPU time of the agent while do runs, and how long it took, in seconds.
func (n *serverNode) cpuTimeOf(do func() error) (cpu, took float64, err error) {
	before, err := n.agent.Usage()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err := do(); err != nil {
		return 0, 0, err
	}
	took = time.Since(start).Seconds()
	after, err := n.agent.Usage()
	return (after.CPUTime - before.CPUTime).Seconds(), took, err
}
