package bench

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// createdByOthers counts requests when the node hears of its pods by a watch while somebody else creates them, and reports
// each as Running as soon as it is known.
func createdByOthers(ctx context.Context, lab *Lab) ([]Row, error) {
	lab.say("%d pods are created by somebody else and turn Running at once", lab.Effort.BurstPods)
	kubelet, err := lab.countCreated(ctx, startKubelet)
	if err != nil {
		return nil, fmt.Errorf("pods created by somebody else, kubelet: %w", err)
	}
	herald, err := lab.countCreated(ctx, startHerald)
	if err != nil {
		return nil, fmt.Errorf("pods created by somebody else: %w", err)
	}
	sent := &tally{kubelet: kubelet, herald: herald, changes: lab.Effort.BurstPods}
	return []Row{sent.row("requests_per_change_created",
		"requests for a change of status, pods just created by somebody else and known by the watch: Herald's")}, nil
}

func (l *Lab) countCreated(ctx context.Context, begin start) (int, error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	n, err := l.newNode(ctx, 0)
	if err != nil {
		return 0, err
	}
	config, script := n.connect(line{})
	side, err := begin(ctx, config, nil)
	if err != nil {
		return 0, err
	}
	events, _, err := n.watch(ctx)
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	failed := make(chan error, 1)
	go func() {
		_, err := n.create(ctx, l.Effort.BurstPods, threeContainers)
		failed <- err
	}()
	if err := follow(events, side, l.Effort.BurstPods); err != nil {
		return 0, err
	}
	side.end()
	return len(script.Requests()), <-failed
}

// follow hands what the watch shows to the manager, as an agent does, until that many pods are Running.
func follow(events watch.Interface, side manager, pods int) error {
	runs := map[string]bool{}
	for event := range events.ResultChan() {
		p, isPod := event.Object.(*v1.Pod)
		if !isPod {
			continue
		}
		side.learn(p)
		if event.Type == watch.Added {
			side.set(p, runningStatus())
		}
		if p.Status.Phase == v1.PodRunning {
			runs[p.Name] = true
		}
		if len(runs) == pods {
			return nil
		}
	}
	return fmt.Errorf("only %d of %d pods became visible", len(runs), pods)
}
