package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// trivialCommand ends at once.
var trivialCommand = []string{"/testpod", "exit", "0"}

// compareExecs runs a command many times, one after the other: through both agents, and directly at the streaming servers of their
// containerds.
func (p serverPair) compareExecs(ctx context.Context, profile ServerProfile) ([]Result, error) {
	var times [][]float64
	err := withRuntimeClient(p[0].runtime, func(theirs runtimeapi.RuntimeServiceClient) error {
		return withRuntimeClient(p[1].runtime, func(ours runtimeapi.RuntimeServiceClient) (err error) {
			var sides []func() (float64, error)
			for i, client := range []runtimeapi.RuntimeServiceClient{theirs, ours} {
				container, err := findContainer(ctx, client, p[i].pods[0].Name)
				if err != nil {
					return err
				}
				sides = append(sides,
					func() (float64, error) { return timeOf(func() error { return p[i].exec(ctx) }) },
					func() (float64, error) { return timeOf(func() error { return execBare(ctx, client, container) }) })
			}
			times, err = measureRounds(profile.Execs, sides...)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	var results []Result
	for _, measurement := range []struct {
		name, what string
		share      float64
	}{{"server_exec_p50", "median", 0.5}, {"server_exec_p99", "99th percentile", 0.99}} {
		var values []float64
		for _, side := range times {
			values = append(values, quantile(side, measurement.share))
		}
		result := Result{
			Name: measurement.name, Kubelet: formatSeconds(values[0]), Herald: formatSeconds(values[2]), Value: values[0] / values[2],
			Description: fmt.Sprintf("exec of a trivial command over SPDY, %d times, %s; directly at the same containerds: %s and %s",
				profile.Execs, measurement.what, formatSeconds(values[1]), formatSeconds(values[3])),
		}
		p[0].env.logf("%s: kubelet %s, Herald %s; %s", result.Name, result.Kubelet, result.Herald, result.Description)
		results = append(results, result)
	}
	return results, nil
}

func timeOf(do func() error) (seconds float64, err error) {
	start := time.Now()
	err = do()
	return time.Since(start).Seconds(), err
}

// exec runs the command in the first pod.
func (n *serverNode) exec(ctx context.Context) error {
	pod := n.pods[0]
	return runCommand(ctx, n.restConfig(), &url.URL{
		Scheme: "https", Host: n.agent.HTTPSAddress(), Path: "/exec/" + pod.Namespace + "/" + pod.Name + "/main",
		RawQuery: url.Values{"command": trivialCommand, "output": {"1"}, "error": {"1"}}.Encode(),
	})
}

// execBare runs the command as an agent would, without one.
func execBare(ctx context.Context, client runtimeapi.RuntimeServiceClient, container string) error {
	response, err := client.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: container, Cmd: trivialCommand, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	target, err := url.Parse(response.Url)
	if err != nil {
		return err
	}
	return runCommand(ctx, &rest.Config{}, target)
}

func runCommand(ctx context.Context, config *rest.Config, target *url.URL) error {
	executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, target)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard})
}

func findContainer(ctx context.Context, client runtimeapi.RuntimeServiceClient, podName string) (string, error) {
	listed, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.name": podName},
	}})
	if err != nil {
		return "", err
	}
	if len(listed.Containers) != 1 {
		return "", fmt.Errorf("pod %s has %d containers, want 1", podName, len(listed.Containers))
	}
	return listed.Containers[0].Id, nil
}

// keepAliveClients is how many clients send requests at the same time, each with one connection.
const keepAliveClients = 8

// compareRequests counts the answers to clients that send one request after the other.
func (p serverPair) compareRequests(ctx context.Context, profile ServerProfile) ([]Result, error) {
	var results []Result
	for _, path := range []string{"/pods", "/metrics"} {
		var sizes [2]int64
		samples, err := p.alternate(profile.Rounds, func(n *serverNode) (serverSample, error) {
			sample, size, err := n.measureRequests(ctx, path, profile.RequestTime)
			sizes[slices.Index(p[:], n)] = size
			return sample, err
		})
		if err != nil {
			return nil, fmt.Errorf("requests for %s: %w", path, err)
		}
		p[0].env.logf("GET %s: kubelet %.2f, Herald %.2f", path, samples[0], samples[1])
		description := fmt.Sprintf("GET %s by %d clients with keep-alive at %d pods; an answer has %.0f kB, the kubelet's %.0f kB",
			path, keepAliveClients, p[0].env.Profile.AgentPods, float64(sizes[1])/1e3, float64(sizes[0])/1e3)
		results = append(results, samples.results("server_"+path[1:], description, "requests/s", "ms per request")...)
	}
	return results, nil
}

// measureRequests returns requests per second, the agent's CPU time per request in milliseconds, and the size of an answer.
func (n *serverNode) measureRequests(ctx context.Context, path string, window time.Duration) (sample serverSample, size int64, err error) {
	var requests, received atomic.Int64
	cpu, took, err := n.cpuTimeOf(func() error {
		errs := make([]error, keepAliveClients)
		var group sync.WaitGroup
		deadline := time.Now().Add(window)
		for i := range errs {
			group.Go(func() { errs[i] = n.repeatRequests(ctx, path, deadline, &requests, &received) })
		}
		group.Wait()
		return errors.Join(errs...)
	})
	if err != nil {
		return sample, 0, err
	}
	count := float64(requests.Load())
	return serverSample{count / took, cpu * 1e3 / count}, received.Load() / requests.Load(), nil
}

// repeatRequests sends at least one request.
func (n *serverNode) repeatRequests(ctx context.Context, path string, deadline time.Time, requests, received *atomic.Int64) error {
	client, err := n.newClient(false)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for {
		response, err := n.get(ctx, client, path)
		if err != nil {
			return err
		}
		size, err := io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if err != nil {
			return err
		}
		requests.Add(1)
		received.Add(size)
		if time.Now().After(deadline) {
			return nil
		}
	}
}
