package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

// State is the state of one probe.
type State struct {
	Container string
	// ContainerID is the instance that the state is about. It is zero before one was observed.
	ContainerID observed.ContainerID
	Kind        judge.Kind
	// Target is what is checked, such as "http-get :8080/ready".
	Target string
	// Result counts for the container's status.
	Result derive.ProbeResult
	// Streak counts equal answers in a row, StreakFailed reports that they are failures. Threshold of them decide.
	Streak       int
	StreakFailed bool
	Threshold    int
	// Errors counts the checks in a row that ended with an error (PRB-18).
	Errors int
	// Last is the last answer of the instance, LastSuccess is when the newest successful one was.
	Last        Answer
	LastSuccess time.Time
	// Median and Longest are of the time that the last checks of the instance took, at most 16.
	Median, Longest time.Duration
	// Checking reports that a check is in flight.
	Checking bool
	// Next is when the next check is due. It is zero during a check and while none is scheduled: the container does not run,
	// the startup probe has not succeeded, or the probe has its final result.
	Next time.Time
}

// Answer is the answer to one check. At is zero if there was none.
type Answer struct {
	At      time.Time
	Took    time.Duration
	OK      bool
	Message string
}

// Errors of CheckNow.
var (
	// ErrNoProbe reports that the pod is not probed, or that the container has no such probe.
	ErrNoProbe = errors.New("no such probe")
	// ErrNotRunning reports that there is no running instance with an address to check.
	ErrNotRunning = errors.New("container is not running")
)

// State returns the state of the pod's probes, in the order of its containers. It returns nil for a pod that is not probed.
func (p *Prober) State(uid podid.UID) []State {
	p.mu.Lock()
	defer p.mu.Unlock()
	podProbes, ok := p.pods[uid]
	if !ok || len(podProbes.probes) == 0 {
		return nil
	}
	states := make([]State, len(podProbes.probes))
	for i, probe := range podProbes.probes {
		states[i] = probe.stateLocked()
		if next := states[i].Next; next.After(time.Now()) {
			states[i].Next = p.evaluationFrom(next)
		}
	}
	return states
}

func (p *containerProbe) stateLocked() State {
	id, result := p.state.LastResult()
	last, count := p.state.Streak()
	state := State{
		Container: p.container.Name, ContainerID: id, Kind: p.kind, Target: p.target,
		Result: result, Streak: count, StreakFailed: last == judge.Failure, Threshold: p.state.Threshold(last),
		Errors: p.state.Errors(), Checking: p.cancel != nil,
	}
	if p.last.container == id {
		state.Last, state.LastSuccess = p.last.answer, p.last.success
		state.Last.Message = p.messageText(id, p.last.answer.Message)
		state.Median, state.Longest = p.last.durations()
	}
	if !p.stopped && !state.Checking {
		state.Next = p.state.NextDue()
	}
	return state
}

// messageText returns a message that is safe to show. It names the container instead of its ID, as events do.
func (p *containerProbe) messageText(id observed.ContainerID, message string) string {
	if id.ID != "" {
		message = strings.ReplaceAll(message, id.ID, p.container.Name)
	}
	return sanitize(message)
}

// CheckNow checks a container once, whether or not a check is due, and returns what was checked and the answer. It changes no
// result, counter, event or metric.
func (p *Prober) CheckNow(ctx context.Context, uid podid.UID, container string, kind judge.Kind) (string, Answer, error) {
	p.mu.Lock()
	var probe *containerProbe
	if podProbes, ok := p.pods[uid]; ok {
		probe = findProbe(podProbes.probes, container, kind)
	}
	p.mu.Unlock()
	if probe == nil {
		return "", Answer{}, fmt.Errorf("%s probe of container %q: %w", strings.ToLower(kind.String()), container, ErrNoProbe)
	}
	current := p.observe(probe)
	reachable := current.target.Address.IsValid() || !check.NeedsAddress(probe.spec)
	if current.instance == nil || current.instance.State != observed.Running || !reachable {
		return probe.target, Answer{}, fmt.Errorf("check container %q: %w", container, ErrNotRunning)
	}
	if probe.spec.Exec != nil {
		select {
		case probe.execSlots <- struct{}{}:
			defer func() { <-probe.execSlots }()
		case <-ctx.Done():
			return probe.target, Answer{}, ctx.Err()
		}
	}
	start := time.Now()
	outcome := p.checkOnce(ctx, probe, current.target)
	if err := ctx.Err(); err != nil {
		return probe.target, Answer{}, err
	}
	answer := newAnswer(outcome, time.Since(start))
	answer.Message = probe.messageText(current.target.ID, answer.Message)
	return probe.target, answer, nil
}

// maxAnswerBytes limits how much of an answer is kept for each probe.
const maxAnswerBytes = 256

// newAnswer returns an answer that was received now. Its message is bounded, but not yet safe to show.
func newAnswer(outcome check.Outcome, took time.Duration) Answer {
	message := outcome.Message
	if len(message) > maxAnswerBytes {
		message = strings.Clone(message[:maxAnswerBytes]) // does not pin the whole output
	}
	return Answer{At: time.Now(), Took: took, OK: outcome.Result == judge.Success, Message: message}
}

// lastAnswers are the newest answers of one instance of a container.
type lastAnswers struct {
	container observed.ContainerID
	answer    Answer
	success   time.Time
	took      [maxDurations]time.Duration // of the newest answers, in a ring
	count     int                         // of all answers
}

// maxDurations is the number of answers of which the time is kept.
const maxDurations = 16

func (l lastAnswers) with(id observed.ContainerID, answer Answer) lastAnswers {
	if id != l.container {
		l = lastAnswers{container: id}
	}
	l.answer = answer
	if answer.OK {
		l.success = answer.At
	}
	l.took[l.count%maxDurations] = answer.Took
	l.count++
	return l
}

// durations returns the median of the kept times, of two in the middle the shorter one, and the longest.
func (l lastAnswers) durations() (median, longest time.Duration) {
	kept := l.took[:min(l.count, maxDurations)] // of the copy
	if len(kept) == 0 {
		return 0, 0
	}
	slices.Sort(kept)
	return kept[(len(kept)-1)/2], kept[len(kept)-1]
}

// targetText describes what a probe checks, like kubectl describe.
func targetText(spec *v1.Probe) string {
	text := "unknown"
	switch {
	case spec.Exec != nil:
		text = "exec " + strings.Join(spec.Exec.Command, " ")
	case spec.HTTPGet != nil:
		scheme := ""
		if spec.HTTPGet.Scheme == v1.URISchemeHTTPS {
			scheme = "https://"
		}
		path := spec.HTTPGet.Path
		if !strings.HasPrefix(path, "/") {
			path = "/" + path
		}
		text = fmt.Sprintf("http-get %s%s:%s%s", scheme, spec.HTTPGet.Host, spec.HTTPGet.Port.String(), path)
	case spec.TCPSocket != nil:
		text = fmt.Sprintf("tcp %s:%s", spec.TCPSocket.Host, spec.TCPSocket.Port.String())
	case spec.GRPC != nil:
		text = fmt.Sprintf("grpc :%d", spec.GRPC.Port)
		if spec.GRPC.Service != nil && *spec.GRPC.Service != "" {
			text += "/" + *spec.GRPC.Service
		}
	}
	return sanitize(text[:min(len(text), maxAnswerBytes)])
}
