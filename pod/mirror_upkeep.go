package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/heraldnode/herald/podid"
)

// mostSteps is more than any situation needs: look up, delete what is wrong, find the name taken, delete that, create.
const mostSteps = 8

// awaitPoll is how soon to ask again whether a shutdown or a source is done. The question costs no request.
const awaitPoll = time.Second

var errRestless = errors.New("the mirror changes faster than it can be replaced")

// visit is one look at a name: what is known, and what it is about.
type visit struct {
	MirrorSituation
	name  podid.FullName
	known *memory
	cause cause
}

// upkeep takes steps until the name is at rest or a step fails, and returns when to look again; 0 for not before the
// next wake-up. A replacement is one such walk: nothing else of the name happens between its delete and its create
// (BUG-30).
func (m *Mirrors) upkeep(ctx context.Context, name podid.FullName) time.Duration {
	known := m.recall(name)
	defer m.retain(name, known)
	var v visit
	for range mostSteps {
		v = m.visit(name, known)
		action := v.Decide()
		if action == LeaveMirror || action == AwaitMirror || action == ReportConflict {
			return m.rest(v, action)
		}
		if wait := m.heldBack(v); wait > 0 {
			return wait
		}
		if err := m.act(ctx, v, action); err != nil {
			return m.failed(ctx, v, err)
		}
	}
	return m.failed(ctx, v, errRestless)
}

// visit joins what the Manager, the memory and the rest of the node know.
func (m *Mirrors) visit(name podid.FullName, known *memory) visit {
	static, watched := m.config.Pods.GetStaticPodAndMirrorPod(name)
	namesake, _ := m.config.Pods.GetPodByFullName(name)
	mirror := known.join(watched) // first, because it may settle what would be overdue
	return visit{
		MirrorSituation: MirrorSituation{
			NodeName:     m.config.NodeName,
			Static:       static,
			Mirror:       mirror,
			Terminating:  m.config.Terminating(name),
			SourcesReady: m.config.StaticSourcesReady(),
			Overdue:      known.overdue(time.Now()),
		},
		name:  name,
		known: known,
		cause: causeOf(static, watched, namesake),
	}
}

func causeOf(static, watched, namesake *v1.Pod) (c cause) {
	if static != nil {
		c.static, c.hash = static.UID, podid.HashOf(static)
	}
	if watched != nil {
		c.mirror, c.dying = watched.UID, watched.DeletionTimestamp != nil
	}
	if namesake != nil {
		c.namesake = namesake.UID
	}
	return c
}

// rest ends a walk that needs no request. A write that the watch has not confirmed is looked after when its time is up.
func (m *Mirrors) rest(v visit, action MirrorAction) time.Duration {
	m.patience.forget(v.name)
	v.known.retryAt, v.known.failedOn = time.Time{}, cause{}
	if action == ReportConflict {
		m.conflicts.report(v.Static, nameTakenBy(v.Mirror))
	} else {
		m.conflicts.resolve(v.name)
	}
	switch {
	case action == AwaitMirror:
		return awaitPoll
	case !v.known.checkAt.IsZero():
		return max(time.Until(v.known.checkAt), time.Nanosecond)
	default:
		return 0
	}
}

func (m *Mirrors) act(ctx context.Context, v visit, action MirrorAction) error {
	switch action {
	case LookUpMirror:
		return m.lookUp(ctx, v)
	case DeleteMirror:
		return m.delete(ctx, v)
	case CreateMirror:
		return m.create(ctx, v)
	default:
		panic(fmt.Sprintf("pod: mirror action %d needs no request", action))
	}
}

// delete treats "not found" and "has another UID" as done: this mirror is gone (PM-20). An outdated mirror that
// nobody else wants gone stays until the node can own its successor; better an old picture than none.
func (m *Mirrors) delete(ctx context.Context, v visit) error {
	if v.Static != nil && v.Mirror.DeletionTimestamp == nil {
		if _, err := m.owner.ask(ctx); err != nil {
			return err
		}
	}
	uid := v.Mirror.UID
	err := m.calls.deletePod(ctx, v.name, uid)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	v.known.noteGone(uid, m.config.ConfirmAfter)
	m.config.Logger.Info("Mirror pod is gone", "pod", v.name, "uid", uid, "orphaned", v.Static == nil)
	return nil
}

// create makes the mirror, or learns what has its name (PM-19, BUG-15). A 404 is about the namespace.
func (m *Mirrors) create(ctx context.Context, v visit) error {
	node, err := m.owner.ask(ctx)
	if err != nil {
		return err
	}
	created, err := m.calls.createPod(ctx, mirrorOf(v.Static, node))
	switch {
	case err == nil:
		v.known.noteMade(created, m.config.ConfirmAfter)
		m.config.Logger.Info("Created mirror pod", "pod", v.name, "uid", created.UID, "static", v.Static.UID)
		return nil
	case apierrors.IsAlreadyExists(err):
		return m.lookUp(ctx, v)
	case isRefusal(err) || apierrors.IsNotFound(err):
		m.owner.stale.Store(true)
		return refused(err)
	default:
		return err
	}
}

// lookUp learns from the server what has the name, and remembers it if it is a mirror of ours, right or wrong.
func (m *Mirrors) lookUp(ctx context.Context, v visit) error {
	pod, err := m.calls.getPod(ctx, v.name)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return err
	}
	v.known.check()
	v.Mirror = pod
	if err == nil && !v.foreign() {
		v.known.noteMade(pod, m.config.ConfirmAfter)
		return nil
	}
	v.known.noteAbsent(m.config.ConfirmAfter)
	switch {
	case v.Static == nil || apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return nameTakenUnseen()
	default:
		return nameTakenBy(pod)
	}
}
