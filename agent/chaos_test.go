package agent_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// troubles are what may befall a node at any time.
var troubles = []string{
	"restart agent", "kill agent", "down", "up", "hang", "heal", "reboot", "exit", "delete", "edit",
	"put back", "wait",
}

// TestWhateverHappensPodsRunOnceAndTheClusterKnows puts a node through troubles in random order. Afterwards every pod that is
// wanted runs, nothing else does, no container ever ran twice at a time, and the API server shows what the node knows.
func TestWhateverHappensPodsRunOnceAndTheClusterKnows(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			state := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				manifests := map[string]string{"web.yaml": webYAML, "web-0.yaml": webYAML, "web-1.yaml": webYAML + "  hostNetwork: true\n"}
				c := &chaos{newStory(t, manifests, state), rand.New(rand.NewPCG(seed, 0)), "web-0.yaml", false} //nolint:gosec // to be repeated
				c.do("script main ends-in 2s", "start agent", "bind web.yaml", "manifest web-0.yaml")
				for range 40 {
					c.befall(troubles[c.rand.IntN(len(troubles))])
					time.Sleep(time.Duration(c.rand.IntN(4000)) * moment)
				}
				c.settle()
			})
		})
	}
}

type chaos struct {
	*story
	rand     *rand.Rand
	manifest string // of the static pod
	hanging  bool
}

func (c *chaos) befall(trouble string) {
	switch trouble {
	case "hang":
		c.mend()
		c.do("hang")
		c.hanging = true
	case "heal":
		c.mend()
	case "reboot":
		c.mend() // no call outlives it
		c.do("reboot")
	case "kill agent":
		c.do("kill agent", "start agent")
	case "exit":
		c.mend()
		c.engine.Exit(c.uidOf("web"), "main", c.rand.IntN(2))
	case "delete":
		c.server.DeletePod(fullName("web"), int64(c.rand.IntN(5)))
	case "edit":
		c.manifest = fmt.Sprintf("web-%d.yaml", c.rand.IntN(2))
		c.do("manifest " + c.manifest)
	case "put back":
		last := c.manifest
		c.do("unmanifest web")
		time.Sleep(time.Duration(c.rand.IntN(3000)) * moment)
		c.do("manifest " + last)
	case "wait":
		time.Sleep(time.Duration(c.rand.IntN(60)) * time.Second)
	default:
		c.do(trouble)
	}
	if c.server.Pod(fullName("web")) == nil {
		c.do("bind web.yaml")
	}
}

func (c *chaos) mend() {
	if c.hanging {
		c.do("heal")
		c.hanging = false
	}
}

// settle ends all trouble, and looks when the longest back-off is over.
func (c *chaos) settle() {
	c.Helper()
	c.mend()
	c.do("up")
	time.Sleep(20 * time.Minute)
	if c.server.Pod(fullName("web")) == nil { // it was deleted, and had to end first
		c.do("bind web.yaml")
		time.Sleep(time.Minute)
	}
	for _, name := range []string{"web", "web-node-1"} {
		if p := c.server.Pod(fullName(name)); p == nil || p.Status.Phase != v1.PodRunning || p.DeletionTimestamp != nil {
			c.Errorf("%s is %v", name, p)
		}
	}
	held, err := c.engine.ListPods(c.Context())
	if err != nil || len(held) != 2 {
		c.Errorf("the runtime holds %d pods, want 2: %v", len(held), err)
	}
	c.end()
}
