package worker_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/resize"
	"github.com/heraldnode/herald/worker"
)

// fakeResizes is a worker.Resizes of one pod.
type fakeResizes struct {
	mu         sync.Mutex // guards the fields below
	unactuated resize.State
	told       []string
}

func (f *fakeResizes) State(podid.UID) derive.Resize { return derive.Resize{} }

func (f *fakeResizes) Actuated(pod *v1.Pod) (resize.State, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return resize.Actuated(resize.Of(pod), f.unactuated), len(f.unactuated) == 0
}

func (f *fakeResizes) SetActuated(_ *v1.Pod, name string, quantities resize.Quantities) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unactuated[name] != quantities {
		delete(f.unactuated, name)
	}
	return nil
}

func (f *fakeResizes) SetInProgress(_ *v1.Pod, inProgress bool) {
	f.tell(fmt.Sprint("in progress ", inProgress))
}
func (f *fakeResizes) SetFailed(_ *v1.Pod, err error) { f.tell("failed: " + err.Error()) }

func (f *fakeResizes) tell(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.told) == 0 || f.told[len(f.told)-1] != text {
		f.told = append(f.told, text)
	}
}

func (f *fakeResizes) accept(before resize.Quantities) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told, f.unactuated = nil, resize.State{"app": before, resize.PodLevel: before}
}

func withCPURequest(pod *v1.Pod) {
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
}

// A resize that fails is reported and tried again with back-off, and does not keep a container from being restarted.
func TestRSZ20_Failure(t *testing.T) {
	resizes := &fakeResizes{}
	runWith(t, func(config *worker.Config) { config.Resizes = resizes }, func(h *harness) {
		web := newAPIPod("web", withCPURequest)
		h.create(web)
		heal := h.runtime.Inject(fakeruntime.Method("ResizePod"), fakeruntime.Fault{Skip: true, Err: errors.New("device busy")})
		resizes.accept(resize.Quantities{MilliCPURequest: 1000})
		h.update(web, plan.OpUpdate)
		h.runtime.ExitContainer(podid.UID(web.UID), "app", 1)
		h.advance(time.Minute)
		if got := h.runtime.CallCount("ResizePod"); got < 2 || got > 20 {
			t.Errorf("got %d attempts in a minute, want some", got)
		}
		if !h.isRunning(web) {
			t.Error("the container was not restarted")
		}
		heal()
		h.advance(time.Minute)
		want := []string{"in progress true", "failed: device busy"}
		if len(resizes.told) < 3 || resizes.told[0] != want[0] || resizes.told[1] != want[1] || resizes.told[len(resizes.told)-1] != "in progress false" {
			t.Errorf("got %q, want %q and the end", resizes.told, want)
		}
	})
}
