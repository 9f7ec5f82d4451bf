package agent_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

var chaosActions = []string{
	"restart agent", "kill agent", "api-down", "api-up", "hang", "heal", "reboot", "exit", "delete", "edit", "re-add", "wait",
}

// TestChaos runs random actions. Afterwards exactly the desired pods are running, no container ever ran twice at a time, and
// the API server shows the node's statuses.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("runs long random histories")
	}
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			stateDir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				manifests := map[string]string{"web.yaml": webYAML, "web-0.yaml": webYAML, "web-1.yaml": webYAML + "  hostNetwork: true\n"}
				c := &chaos{
					harness: newHarness(t, manifests, stateDir), manifest: "web-0.yaml",
					rand: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // reproducible by its seed
				}
				c.runCommands("script main ends-in 2s", "start agent", "bind web.yaml", "put-manifest web-0.yaml")
				for range 40 {
					c.act(chaosActions[c.rand.IntN(len(chaosActions))])
					time.Sleep(time.Duration(c.rand.IntN(4000)) * time.Millisecond)
				}
				c.settle()
			})
		})
	}
}

type chaos struct {
	*harness
	rand      *rand.Rand
	manifest  string // of the static pod
	isHanging bool
}

func (c *chaos) act(action string) {
	switch action {
	case "hang":
		c.healRuntime()
		c.runCommands("hang")
		c.isHanging = true
	case "heal":
		c.healRuntime()
	case "reboot":
		c.healRuntime() // no runtime call survives a reboot
		c.runCommands("reboot")
	case "kill agent":
		c.runCommands("kill agent", "start agent")
	case "exit":
		c.healRuntime()
		c.runtime.ExitContainer(c.runningUID("web"), "main", c.rand.IntN(2))
	case "delete":
		c.server.DeletePod(fullName("web"), int64(c.rand.IntN(5)))
	case "edit":
		c.manifest = fmt.Sprintf("web-%d.yaml", c.rand.IntN(2))
		c.runCommands("put-manifest " + c.manifest)
	case "re-add":
		c.runCommands("remove-manifest web")
		time.Sleep(time.Duration(c.rand.IntN(3000)) * time.Millisecond)
		c.runCommands("put-manifest " + c.manifest)
	case "wait":
		time.Sleep(time.Duration(c.rand.IntN(60)) * time.Second)
	default:
		c.runCommands(action)
	}
	if c.server.Pod(fullName("web")) == nil {
		c.runCommands("bind web.yaml")
	}
}

func (c *chaos) healRuntime() {
	if c.isHanging {
		c.runCommands("heal")
		c.isHanging = false
	}
}

// settle ends all faults and checks the node after the longest backoff.
func (c *chaos) settle() {
	c.Helper()
	c.healRuntime()
	c.runCommands("api-up")
	time.Sleep(20 * time.Minute)
	if c.server.Pod(fullName("web")) == nil { // a deletion was still in progress
		c.runCommands("bind web.yaml")
		time.Sleep(time.Minute)
	}
	for _, name := range []string{"web", "web-node-1"} {
		if pod := c.server.Pod(fullName(name)); pod == nil || pod.Status.Phase != v1.PodRunning || pod.DeletionTimestamp != nil {
			c.Errorf("%s: got %v, want a running pod", name, pod)
		}
	}
	pods, err := c.runtime.ListPods(c.Context())
	if err != nil || len(pods) != 2 {
		c.Errorf("got %d pods in the runtime, %v, want 2", len(pods), err)
	}
	c.finish()
}
