package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/agent"
	"github.com/heraldnode/herald/event/broadcaster"
	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/source"
)

// config is a complete one, of a node alone.
func config(t *testing.T, edit func(*agent.Config)) agent.Config {
	t.Helper()
	events, err := broadcaster.New(broadcaster.Config{NodeName: nodeName, Scheme: kubeapi.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	c := agent.Config{NodeName: nodeName, Sources: []source.Source{newFiles()}, Runtime: engine.New(), Events: events}
	edit(&c)
	return c
}

func TestWhatIsWrongWithTheConfigIsNamed(t *testing.T) {
	tests := map[string]struct {
		edit func(*agent.Config)
		want string
	}{
		"NodeName":     {func(c *agent.Config) { c.NodeName = "" }, "agent.Config: NodeName is required"},
		"Sources":      {func(c *agent.Config) { c.Sources = nil }, "agent.Config: Sources is required"},
		"Runtime":      {func(c *agent.Config) { c.Runtime = nil }, "agent.Config: Runtime is required"},
		"Events":       {func(c *agent.Config) { c.Events = nil }, "agent.Config: Events is required"},
		"Housekeeping": {func(c *agent.Config) { c.HousekeepingInterval = -time.Second }, "agent.Config: HousekeepingInterval must not be negative"},
		"Resync":       {func(c *agent.Config) { c.Resync = -time.Second }, "Resync"},
		"two sources of one name": {
			func(c *agent.Config) { c.Sources = append(c.Sources, newFiles()) }, `source.MuxConfig: Sources contains two sources named "file"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := agent.New(config(t, test.edit)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
		})
	}
	t.Run("all at once", func(t *testing.T) {
		_, err := agent.New(agent.Config{})
		for _, field := range []string{"NodeName", "Sources", "Runtime", "Events"} {
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("got %v, want %s in it", err, field)
			}
		}
	})
}

func TestMetricsOfAllPartsGoTogether(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	if _, err := agent.New(config(t, func(c *agent.Config) { c.Metrics = registry })); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, family := range families {
		seen[family.GetName()] = true
	}
	for _, name := range []string{"kubelet_desired_pods", "kubelet_mirror_pods"} {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
	if _, err := agent.New(config(t, func(c *agent.Config) { c.Metrics = registry })); err == nil {
		t.Error("a second agent with the same registry was made")
	}
}
