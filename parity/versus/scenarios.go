package versus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Names of rules.
const (
	promOOM, heraldOOM               = "KubernetesContainerOomKiller", "OOMKilled"
	promCrashLooping, heraldLooping  = "KubePodCrashLooping", "CrashLooping"
	promNotReady, heraldNotReady     = "KubePodNotReady", "NotReady"
	promNodeNotReady, heraldNoServer = "KubeNodeNotReady", "ServerUnreachable"
	downtime                         = 20 * time.Second
	sourceDowntime                   = 45 * time.Second
	maxDelay                         = 75 * time.Second // of the slow Prometheus: a scrape, an evaluation, and time for a busy machine
	// apart is how long events of the same rule and node are apart: a webhook gets those within 10 s in one message.
	apart         = 15 * time.Second
	aged          = ruleWindow + 45*time.Second
	exhaustMemory = "exhaust 128\n"
)

// Names of pods.
const (
	oomPod   = "oom"
	crashPod = "crash"
)

// oomEvent lets a container of the pod run out of memory, and waits until its alerts are over. The orders say what the container does.
func (r *rig) oomEvent(ctx context.Context, e *Event, age time.Duration, orders string) error {
	e.For, e.Window = 0, Seconds(ruleWindow.Seconds())
	e.prometheus, e.herald = alertID{name: promOOM, pod: e.Name}, alertID{name: heraldOOM, pod: e.Name}
	r.add(e)
	pod, err := r.nodes[steady].create(ctx, e.Name, obeying)
	if err != nil {
		return err
	}
	if err := pause(ctx, age); err != nil {
		return err
	}
	if err := pod.tell(orders); err != nil {
		return err
	}
	_, endErr := pod.awaitTimes(ctx, "ended", 1)
	_, startErr := pod.awaitTimes(ctx, "started", 2)
	if err := errors.Join(endErr, startErr); err != nil {
		return err
	}
	e.Began = pod.times("ended")[0]
	e.Ended = e.Began.Add(ruleWindow)
	e.Gap = seconds(pod.times("started")[1].Sub(e.Began))
	r.logf("%s: ran again after %s", e.Name, e.Gap)
	return pauseUntil(ctx, e.Ended.Add(maxDelay))
}

func (r *rig) oomKilled(ctx context.Context) error {
	return r.oomEvent(ctx, &Event{Name: oomPod, Title: "a container is OOM-killed and runs again"}, aged, exhaustMemory)
}

func (r *rig) oomOverwritten(ctx context.Context) error {
	title := "the same, but it fails once more as soon as it runs again"
	return r.oomEvent(ctx, &Event{Name: "oom-overwritten", Title: title}, aged+2*apart, exhaustMemory+"exit 1\n")
}

func (r *rig) oomYoung(ctx context.Context) error {
	title := "a container is OOM-killed in the first seconds of its pod, and runs again"
	return r.oomEvent(ctx, &Event{Name: "oom-young", Title: title}, 0, exhaustMemory)
}

// crashLoop lets a container fail often and then run.
func (r *rig) crashLoop(ctx context.Context) error {
	const name, loopTime = crashPod, 80 * time.Second // the next start is 150 s after the first end
	e := r.add(&Event{
		Name: name, Title: "a container crash-loops for two and a half minutes, then runs",
		For: Seconds(ruleFor.Seconds()), Window: Seconds(ruleWindow.Seconds()),
		subject: subject{prometheus: alertID{name: promCrashLooping, pod: name}, herald: alertID{name: heraldLooping, pod: name}},
	})
	pod, err := r.nodes[steady].create(ctx, name, obeying)
	if err != nil {
		return err
	}
	if err := pod.tell("always exit 3\n"); err != nil {
		return err
	}
	if e.Began, err = pod.awaitTimes(ctx, "ended", 1); err != nil {
		return err
	}
	if err := pauseUntil(ctx, e.Began.Add(loopTime)); err != nil {
		return err
	}
	if err := pod.tell(""); err != nil {
		return err
	}
	if e.Ended, err = pod.awaitTimes(ctx, "started", len(pod.times("started"))+1); err != nil {
		return err
	}
	r.logf("%s: runs", name)
	if err := r.awaitTold(ctx, e, true, e.Began, Usual, Fast, Herald); err != nil {
		return err
	}
	return r.awaitTold(ctx, e, false, e.Ended, Usual, Fast, Herald)
}

// unready adds an event of a pod that is not ready from now on.
func (p *testPod) unready(ctx context.Context, e *Event) (err error) {
	e.For = Seconds(ruleFor.Seconds())
	e.prometheus, e.herald = alertID{name: promNotReady, pod: p.name}, alertID{name: heraldNotReady, pod: p.name}
	p.add(e)
	e.Began, err = p.setReady(ctx, false)
	return err
}

// deleted deletes a pod whose alert fires.
func (r *rig) deleted(ctx context.Context) error {
	pod, err := r.nodes[steady].create(ctx, "deleted", serving)
	if err != nil {
		return err
	}
	e := &Event{Name: "deleted", Title: "a pod is not ready; it is deleted while its alert fires"}
	if err := pod.unready(ctx, e); err != nil {
		return err
	}
	if err := r.awaitTold(ctx, e, true, e.Began, Usual, Fast, Herald); err != nil {
		return err
	}
	e.Ended = time.Now()
	if err := pod.delete(ctx); err != nil {
		return err
	}
	return r.awaitTold(ctx, e, false, e.Ended, Usual, Fast, Herald)
}

// nodeEvent returns an event of a node.
func (r *rig) nodeEvent(node, title string) *Event {
	return r.add(&Event{
		Name: "node-" + node, Title: title, For: Seconds(ruleFor.Seconds()), Began: time.Now(),
		subject: subject{prometheus: alertID{name: promNodeNotReady, node: node}, herald: alertID{name: heraldNoServer, node: node}},
	})
}

// cutOff lets a node lose its API server. Meanwhile one of its pods fails and recovers, and another is well.
func (r *rig) cutOff(ctx context.Context) error {
	node := r.nodes[cut]
	pod, err := node.create(ctx, "cut-sick", serving)
	if err != nil {
		return err
	}
	well, err := node.create(ctx, "cut-well", serving)
	if err != nil {
		return err
	}
	r.logf("%s: disconnected", cut)
	e := r.nodeEvent(cut, "a node cannot reach the API server; its agent and its pods run")
	wrong := r.add(&Event{
		Name: well.name, Title: "a pod of that node that is ready all the time", For: e.For, Began: e.Began, FalseAlarm: true,
		subject: subject{prometheus: alertID{name: promNotReady, pod: well.name}, herald: alertID{name: heraldNotReady, pod: well.name}},
	})
	reconnect := node.disconnect()
	if err := pause(ctx, 10*time.Second); err != nil {
		return err
	}
	sick := &Event{Name: pod.name, Title: "a pod of that node is not ready, and ready again before the node is back"}
	if err := pod.unready(ctx, sick); err != nil {
		return err
	}
	err = errors.Join(
		r.awaitTold(ctx, e, true, e.Began, Usual, Fast, Herald),
		r.awaitTold(ctx, sick, true, e.Began, Usual, Fast, Herald),
	)
	if err != nil {
		return err
	}
	if sick.Ended, err = pod.setReady(ctx, true); err != nil {
		return err
	}
	if err := r.awaitTold(ctx, sick, false, sick.Ended, Herald); err != nil {
		return err
	}
	reconnect()
	e.Ended = time.Now()
	wrong.Ended = e.Ended
	r.logf("%s: reconnected", cut)
	return errors.Join(
		r.awaitTold(ctx, e, false, e.Ended, Usual, Fast, Herald),
		r.awaitTold(ctx, sick, false, sick.Ended, Usual, Fast),
	)
}

// dead kills the agent of a node. Meanwhile one of its pods fails.
func (r *rig) dead(ctx context.Context) error {
	node := r.nodes[lost]
	pod, err := node.create(ctx, "lost-sick", serving)
	if err != nil {
		return err
	}
	r.logf("%s: agent killed", lost)
	e := r.nodeEvent(lost, "the agent of a node is dead, as if the machine were")
	if err := node.agent.Kill(); err != nil {
		return err
	}
	if err := pause(ctx, 10*time.Second); err != nil {
		return err
	}
	sick := &Event{Name: pod.name, Title: "a pod of that node is not ready, until after its agent is back"}
	if err := pod.unready(ctx, sick); err != nil {
		return err
	}
	if err := r.awaitTold(ctx, e, true, e.Began, Usual, Fast); err != nil {
		return err
	}
	if err := node.agent.Start(ctx); err != nil {
		return err
	}
	e.Ended = time.Now()
	r.logf("%s: agent started", lost)
	if err := r.awaitTold(ctx, e, false, e.Ended, Usual, Fast); err != nil {
		return err
	}
	if err := errors.Join(r.awaitTold(ctx, sick, true, sick.Began, Herald), pause(ctx, apart)); err != nil {
		return err
	}
	if sick.Ended, err = pod.setReady(ctx, true); err != nil {
		return err
	}
	return r.awaitTold(ctx, sick, false, sick.Ended, Usual, Fast, Herald)
}

// restart restarts those that evaluate rules, and then those that they ask, while alerts fire.
func (r *rig) restart(ctx context.Context) error {
	node := r.nodes[resumed]
	names := []string{"firing", "healing", "pending"}
	pods := make([]*testPod, len(names))
	for i, name := range names {
		var err error
		if pods[i], err = node.create(ctx, name, serving); err != nil {
			return err
		}
	}
	others := subject{prefix: restarted}
	firing := &Event{subject: others, Name: names[0], Title: "Prometheus and the agent are killed for 20 s while an alert fires"}
	healing := &Event{subject: others, Name: names[1], Title: "the same, but the pod is ready again while they are down"}
	pending := &Event{subject: others, Name: names[2], Title: "the same, while an alert is pending"}
	if err := errors.Join(pods[0].unready(ctx, firing), pause(ctx, apart), pods[1].unready(ctx, healing)); err != nil {
		return err
	}
	for _, e := range []*Event{firing, healing} {
		if err := r.awaitTold(ctx, e, true, e.Began, Usual, Fast, Herald); err != nil {
			return err
		}
	}
	if err := pods[2].unready(ctx, pending); err != nil {
		return err
	}
	if err := r.awaitPending(ctx, pending); err != nil {
		return err
	}
	if err := r.killEvaluators(ctx, func() (err error) { healing.Ended, err = pods[1].setReady(ctx, true); return err }); err != nil {
		return err
	}
	for _, e := range []*Event{pending, firing} {
		if err := r.awaitTold(ctx, e, true, e.Began, Usual, Fast, Herald); err != nil {
			return err
		}
	}
	if err := r.awaitTold(ctx, healing, false, healing.Ended, Herald); err != nil {
		return err
	}
	return r.restartSources(ctx, pods[0], firing, pending)
}

// killEvaluators kills Herald and Prometheus and starts them again. The function runs while they are down.
func (r *rig) killEvaluators(ctx context.Context, meanwhile func() error) error {
	node := r.nodes[resumed]
	servers := []interface {
		Kill() error
		Start(ctx context.Context) error
	}{node.agent, r.proms[restarted+Usual], r.proms[restarted+Fast]}
	r.logf("evaluators killed")
	for _, server := range servers {
		if err := server.Kill(); err != nil {
			return err
		}
	}
	at := time.Now().Add(downtime)
	if err := pause(ctx, downtime/4); err != nil {
		return err
	}
	if err := errors.Join(meanwhile(), pauseUntil(ctx, at)); err != nil {
		return err
	}
	for _, server := range servers {
		if err := server.Start(ctx); err != nil {
			return err
		}
	}
	r.logf("evaluators started")
	return nil
}

// restartSources kills what the evaluators ask: kube-state-metrics, and the container runtime.
func (r *rig) restartSources(ctx context.Context, pod *testPod, firing, pending *Event) error {
	node := r.nodes[resumed]
	e := r.add(&Event{
		Name: "source", For: firing.For, Began: time.Now(),
		subject: subject{prefix: restarted, carried: true, prometheus: firing.prometheus, herald: firing.herald},
		Title:   "kube-state-metrics and containerd are killed for 45 s while an alert fires",
	})
	for _, before := range []*Event{firing, pending} {
		before.until, before.Ended, before.Continues = e.Began, e.Began, true
	}
	r.logf("sources killed")
	if err := errors.Join(r.exporter[restarted].Kill(), node.runtime.Kill(), pause(ctx, sourceDowntime)); err != nil {
		return err
	}
	if err := errors.Join(r.exporter[restarted].Start(ctx), node.runtime.Restart(ctx)); err != nil {
		return err
	}
	started := time.Now()
	r.logf("sources started")
	if err := pause(ctx, maxDelay); err != nil { // those that resolve the alert have told so
		return err
	}
	for _, side := range []string{Usual, Fast, Herald} { // and tell when it fires again
		if e.told(r.receiver, side, false, e.Began) {
			if err := r.awaitTold(ctx, e, true, started, side); err != nil {
				return err
			}
		}
	}
	var err error
	if e.Ended, err = pod.setReady(ctx, true); err != nil {
		return err
	}
	return r.awaitTold(ctx, e, false, e.Ended, Usual, Fast, Herald)
}

// awaitPending waits until the alert of the event is pending in both Prometheus servers.
func (r *rig) awaitPending(ctx context.Context, e *Event) error {
	deadline := time.Now().Add(hangTimeout)
	for _, side := range []string{Usual, Fast} {
		for {
			isPending, err := r.proms[e.prefix+side].isPending(ctx, e.prometheus)
			if err != nil {
				return err
			}
			if isPending {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s: %s is not pending", side, e.prometheus)
			}
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *prometheus) isPending(ctx context.Context, id alertID) (bool, error) {
	body, err := fetch(ctx, http.MethodGet, p.url+"/api/v1/alerts")
	if err != nil {
		return false, err
	}
	var answer struct {
		Data struct {
			Alerts []struct {
				Labels map[string]string `json:"labels"`
				State  string            `json:"state"`
			} `json:"alerts"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return false, err
	}
	for _, a := range answer.Data.Alerts {
		if id.matches(a.Labels) && a.State == "pending" {
			return true, nil
		}
	}
	return false, nil
}
