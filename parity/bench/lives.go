package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/controlplane"
)

// auditPolicy logs the requests of nodes when they are answered.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
rules:
- {level: Metadata, userGroups: ["system:nodes"]}
- {level: None}
`

// requestsPerPodLife counts the requests of a node, as the API server sees them, from the creation of pods with service account
// tokens until they are gone. Events are not counted.
func requestsPerPodLife(ctx context.Context, env *Environment) (results []Result, err error) {
	kubelet, herald, remove, err := env.buildAgents(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	binaries, err := controlplane.Build(ctx, env.Progress)
	if err != nil {
		return nil, err
	}
	audited := *env // the audit log would slow the other measurements down
	audited.ControlPlane, err = controlplane.Start(ctx, controlplane.Config{Binaries: binaries, AuditPolicy: []byte(auditPolicy)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, audited.ControlPlane.Stop()) }()
	if err := audited.createTokenAccount(ctx); err != nil {
		return nil, fmt.Errorf("create service account: %w", err)
	}
	var last [2]requestCounts
	count := func(side int, program agents.Program) func() (float64, error) {
		return func() (float64, error) {
			last[side], err = audited.countLife(ctx, program)
			env.logf("%d pods with tokens on a node with %s, requests:\n%s", env.Profile.AgentPods, program, last[side])
			return last[side].perPod(env.Profile.AgentPods), err
		}
	}
	counts, err := measureRounds(env.Profile.AgentRounds, count(0, kubelet), count(1, herald))
	if err != nil {
		return nil, fmt.Errorf("count requests: %w", err)
	}
	format := func(counts []float64) string { return fmt.Sprintf("%.1f", median(counts)) }
	return []Result{{
		Name: "requests_per_pod_life",
		Description: fmt.Sprintf("requests of a node, without events, for one of %d pods with a service account token and probes, from its "+
			"creation until it is gone: Herald's divided by the kubelet's (in the last round %s and %s)",
			env.Profile.AgentPods, last[1].summary(), last[0].summary()),
		Kubelet: format(counts[0]), Herald: format(counts[1]), Value: ratio(counts[1], counts[0]), Goal: AtMost(0.45),
	}}, nil
}

// requestCounts has the number of requests by verb and resource.
type requestCounts map[string]int

func (c requestCounts) perPod(pods int) float64 {
	sum := 0
	for _, count := range c {
		sum += count
	}
	return float64(sum) / float64(pods)
}

// String returns a table.
func (c requestCounts) String() string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&out, "  %4d %s\n", c[name], name)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// summary names the frequent requests.
func (c requestCounts) summary() string {
	var parts []string
	others := 0
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if c[name] < minSummarized {
			others += c[name]
			continue
		}
		parts = append(parts, fmt.Sprintf("%d %s", c[name], name))
	}
	return strings.Join(append(parts, fmt.Sprintf("%d others", others)), ", ")
}

// minSummarized is how many requests of a kind summary shows.
const minSummarized = 10

func (e *Environment) countLife(ctx context.Context, program agents.Program) (counts requestCounts, err error) {
	err = e.withAgent(ctx, program, func(ctx context.Context, n *node, agent *agents.Agent) error {
		time.Sleep(agentWarmUp)
		startTime := time.Now()
		if _, err := n.runWorkload(ctx, agent, workload{pod: tokenPod}); err != nil {
			return err
		}
		counts, err = n.countRequests(startTime)
		return err
	})
	return counts, err
}

// countRequests counts the node's requests since a time.
func (n *node) countRequests(since time.Time) (requestCounts, error) {
	file, err := os.Open(n.env.ControlPlane.AuditLog())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	counts := requestCounts{}
	for lines := json.NewDecoder(file); ; {
		var line struct {
			User   struct{ Username string }
			Verb   string
			Object struct{ Resource, Subresource string } `json:"objectRef"`
			At     metav1.MicroTime                       `json:"requestReceivedTimestamp"`
		}
		err := lines.Decode(&line)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF): // the last line may not be complete
			return counts, nil
		case err != nil:
			return nil, fmt.Errorf("read audit log: %w", err)
		case line.User.Username != "system:node:"+n.name || line.Object.Resource == "events" || line.At.Time.Before(since):
			continue
		}
		counts[line.Verb+" "+strings.TrimSuffix(line.Object.Resource+"/"+line.Object.Subresource, "/")]++
	}
}
