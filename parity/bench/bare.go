package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/status/patch"
)

// bare is no manager: it sends patches that were made beforehand, and does nothing else. Nobody can be faster with as many
// requests in flight.
type bare struct {
	patches map[*v1.Pod][]byte
	waiting chan *v1.Pod
	stop    context.CancelFunc
	senders sync.WaitGroup
}

func startBare(inFlight int) start {
	return func(ctx context.Context, config *rest.Config, pods []*v1.Pod) (manager, error) {
		client, err := kubeapi.New(config)
		if err != nil {
			return nil, fmt.Errorf("make a client: %w", err)
		}
		ctx, stop := context.WithCancel(ctx)
		b := &bare{patches: map[*v1.Pod][]byte{}, waiting: make(chan *v1.Pod, len(pods)), stop: stop}
		for _, p := range pods {
			if b.patches[p], err = barePatch(p); err != nil {
				stop()
				return nil, err
			}
		}
		for range inFlight {
			b.senders.Go(func() { b.send(ctx, client) })
		}
		return b, nil
	}
}

// barePatch says what our manager's patch says.
func barePatch(p *v1.Pod) ([]byte, error) {
	s := runningStatus()
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = *s.StartTime
	}
	s.QOSClass = p.Status.QOSClass
	absent := []v1.PodConditionType{}
	for _, kind := range derive.OwnedConditions() {
		if !slices.ContainsFunc(s.Conditions, func(c v1.PodCondition) bool { return c.Type == kind }) {
			absent = append(absent, kind)
		}
	}
	return patch.Build(patch.Request{UID: p.UID, ResourceVersion: p.ResourceVersion, Status: &s, Absent: absent})
}

// send takes pods until ctx ends. A patch that fails makes its pod invisible, and so the measurement fails.
func (b *bare) send(ctx context.Context, client *kubeapi.Client) {
	for {
		select {
		case p := <-b.waiting:
			_, _ = client.PatchPodStatus(ctx, p.Namespace, p.Name, b.patches[p])
		case <-ctx.Done():
			return
		}
	}
}

func (b *bare) learn(*v1.Pod)                 {}
func (b *bare) set(p *v1.Pod, _ v1.PodStatus) { b.waiting <- p }
func (b *bare) setReady(*v1.Pod, bool)        {}

func (b *bare) end() {
	b.stop()
	b.senders.Wait()
}
