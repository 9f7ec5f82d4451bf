package sidebyside_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/parity/internal/recorder"
)

func TestMain(m *testing.M) {
	// All pods at once: tests wait much more than they work.
	if err := flag.Set("test.parallel", "100"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestTheClusterIsToldTheSameOfTheSamePods(t *testing.T) {
	l := newLab(t)
	t.Run("pods", func(t *testing.T) {
		for name, sc := range scenarios {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l.compare(t, name, &sc)
			})
		}
	})
	if !t.Failed() {
		mustAllBeMet(t, l.met)
	}
}

// afterwards is how long the rest may take to arrive when both sides have settled: events, and the same number of restarts.
const afterwards = 30 * time.Second

func (l *lab) compare(t *testing.T, name string, sc *scenario) {
	t.Helper()
	if err := l.play(t.Context(), name, sc); err != nil {
		t.Fatal(err)
	}
	var problems []string
	for deadline := time.Now().Add(afterwards); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		var err error
		if problems, err = l.problems(t.Context(), name, sc); err != nil {
			t.Fatal(err)
		}
		if len(problems) == 0 {
			return
		}
	}
	t.Errorf("the cluster is told otherwise of pod %s:\n%s\nwhat was seen of the kubelet's:\n%s\nwhat was seen of herald's:\n%s",
		name, strings.Join(problems, "\n"), l.kubelet.Story(sc.nameOn(l.kubelet, name)), l.herald.Story(sc.nameOn(l.herald, name)))
}

// play lets the pod live on both sides at once.
func (l *lab) play(ctx context.Context, name string, sc *scenario) error {
	errs := make([]error, 2)
	var both sync.WaitGroup
	for i, s := range l.sides() {
		both.Go(func() { errs[i] = sc.play(ctx, name, s) })
	}
	both.Wait()
	return errors.Join(errs...)
}

// problems are what differs now between the two sides.
func (l *lab) problems(ctx context.Context, name string, sc *scenario) ([]string, error) {
	their, our := sc.nameOn(l.kubelet, name), sc.nameOn(l.herald, name)
	theirPod, ourPod := samePoint(l.kubelet.settled(their, sc.settled), l.herald.settled(our, sc.settled))
	if theirPod == nil {
		return []string{"they have settled after different numbers of restarts"}, nil
	}
	theirs, err := l.kubelet.view(ctx, theirPod)
	if err != nil {
		return nil, err
	}
	ours, err := l.herald.view(ctx, ourPod)
	if err != nil {
		return nil, err
	}
	problems := unintended(theirs, ours, l.meet)
	return append(problems, impossible(l.kubelet.Versions(their), l.herald.Versions(our))...), nil
}

// meet notes that an intended difference was met.
func (l *lab) meet(it *intended) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.met[it] = true
}

// settled are the last versions of the pod that are so, by how often its containers were restarted until then.
func (s *side) settled(name string, is condition) map[int32]*v1.Pod {
	found := map[int32]*v1.Pod{}
	for _, version := range s.Versions(name) {
		if is(version) {
			found[restarts(version)] = version
		}
	}
	return found
}

func restarts(p *v1.Pod) (sum int32) {
	for _, c := range recorder.ContainersOf(&p.Status) {
		sum += c.RestartCount
	}
	return sum
}

// samePoint is the first point of a pod's life that both sides have shown: who is slow to write may skip one.
func samePoint(kubelet, herald map[int32]*v1.Pod) (theirs, ours *v1.Pod) {
	for count, pod := range kubelet {
		if herald[count] != nil && (theirs == nil || count < restarts(theirs)) {
			theirs, ours = pod, herald[count]
		}
	}
	return theirs, ours
}
