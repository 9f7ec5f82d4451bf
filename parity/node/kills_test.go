package node_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/parity/internal/recorder"
)

// Two hundred kills on four nodes at once: what a node with a broken agent sees in a week.
func TestF15KillsWhilePodsCrashAndFlip(t *testing.T) {
	const nodes, lives = 4, 50
	for n := range nodes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			tr := tryAlone(t, fmt.Sprintf("besieged-%d", n))
			seed := rand.Uint64()
			t.Logf("the moments are drawn with seed %d", seed)
			tr.besiege(lives, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

// besiege kills the agent many times while its pods crash, flip, end and run on.
func (tr *trial) besiege(lives int, random *rand.Rand) {
	tr.bind(tr.steady())
	tr.bind(tr.keepsDiary(newPod("crashing", runs("main", "work", diaryPath+"/crashing", "main", "--after", "300ms", "--exit", "1"))))
	tr.writeManifest("static", "main")
	tr.makeServer(main, "", true)
	flipping := newPod("flipping", main.container())
	flipping.Spec.Containers[0].ReadinessProbe = everySecond(main.kinds()["http"])
	tr.bind(flipping)
	address := tr.Await("flipping", "ready", isReady).Status.PodIP
	before := tr.Await("steady", "ready", isReady)
	began := time.Now()

	stop := tr.flip(address)
	for life := range lives {
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond) // the moment is any
		tr.strike(tr.theAgent(), 0)
		if life%10 == 0 {
			job := newPod(fmt.Sprintf("job-%d", life), runs("main", "work", fmt.Sprintf("%s/job-%d", diaryPath, life), "main", "--after", "500ms"))
			job.Spec.RestartPolicy = v1.RestartPolicyOnFailure
			tr.bind(tr.keepsDiary(job))
		}
	}
	stop()

	tr.mustBeUnharmed(before)
	tr.mustHaveBackedOff(began)
	for life := 0; life < lives; life += 10 {
		name := fmt.Sprintf("job-%d", life)
		tr.Await(name, "succeeded", hasPhase(v1.PodSucceeded))
		tr.mustHaveDone(name, "main started", "main ended")
	}
	tr.mustHaveDone("static", "main started")
}

// steady is a pod of all kinds of containers, with probes, to which nothing happens.
func (tr *trial) steady() *v1.Pod {
	p := tr.worker("steady")
	sidecar := side.container()
	sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	sidecar.StartupProbe = everySecond(side.kinds()["http"])
	sidecar.ReadinessProbe = everySecond(side.kinds()["grpc"])
	sidecar.LivenessProbe = everySecond(side.kinds()["tcp"])
	for _, probe := range []*v1.Probe{sidecar.StartupProbe, sidecar.ReadinessProbe, sidecar.LivenessProbe} {
		probe.FailureThreshold = 10 // the machine is busy, and a slow answer would be a reason
	}
	p.Spec.InitContainers = append([]v1.Container{sidecar}, p.Spec.InitContainers...)
	return p
}

// flip has the readiness of the pod come and go, until it is stopped; then the pod is ready.
func (tr *trial) flip(address string) (stop func()) {
	ctx, cancel := context.WithCancel(tr.t.Context())
	var flipping sync.WaitGroup
	flipping.Go(func() {
		for well := false; ctx.Err() == nil; well = !well {
			tr.makeServer(main, address, well)
			time.Sleep(2 * time.Second) // so that every state may be seen
		}
	})
	return func() {
		cancel()
		flipping.Wait()
		tr.makeServer(main, address, true)
	}
}

// mustBeUnharmed fails the test if anything happened to the pods to which nothing had to happen.
func (tr *trial) mustBeUnharmed(before *v1.Pod) {
	tr.t.Helper()
	tr.mustHaveDone("steady", "init started", "init ended", "main started")
	if diff := cmp.Diff(before.Status, tr.Await("steady", "ready", isReady).Status); diff != "" {
		tr.t.Errorf("steady changed although nothing happened to it (-before +after):\n%s", diff)
	}
	flipped := tr.Await("flipping", "ready in the end", isReady)
	if restarts := containerOf(flipped, main.name).RestartCount; restarts != 0 {
		tr.t.Errorf("flipping was restarted %d times", restarts)
	}
	if !slices.ContainsFunc(tr.Versions("flipping"), func(p *v1.Pod) bool { return !isReady(p) }) {
		tr.t.Error("flipping was never seen not ready")
	}
}

// mustHaveBackedOff fails the test if the container that crashes was started more often than its back-off allows, or more
// often than is told. A start that containerd took back counts, although the program did not come to its first line.
func (tr *trial) mustHaveBackedOff(began time.Time) {
	tr.t.Helper()
	var c v1.ContainerStatus
	recorder.Eventually(tr.t, "the starts of crashing", func() (string, bool) {
		c = containerOf(tr.Await("crashing", "there", func(*v1.Pod) bool { return true }), "main")
		starts := 0
		for _, line := range tr.written("crashing") {
			if line == "main started" {
				starts++
			}
		}
		return fmt.Sprintf("%d, with %d restarts told", starts, c.RestartCount), starts > 0 && starts <= int(c.RestartCount)+1
	})
	// The first restart comes at once, then 10, 20, 40 ... seconds pass.
	const first = 10
	most := 2 + int(math.Log2(time.Since(began).Seconds()/first+1))
	if int(c.RestartCount) > most {
		tr.t.Errorf("crashing was restarted %d times in %s, and %d is the most", c.RestartCount, time.Since(began), most)
	}
}
