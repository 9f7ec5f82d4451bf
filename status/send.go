package status

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status/patch"
)

// maxConflicts is how many 409s in a row are met with the newest version before the patch goes without one. It states all
// that it owns and so is right on any base; the version only keeps an older request from landing after it.
const maxConflicts = 5

// turn brings the API server up to date with one pod: as a rule by one request, two when the pod can be deleted, and one
// more when what the server says is not known yet.
func (m *Manager) turn(ctx context.Context, uid podid.UID) {
	j, found := m.look(uid)
	if !found {
		lookAgain(m.progress)
		return
	}
	n, merged := decide(j, time.Now())
	if n == read {
		if !j.isOpen() && j.pause.failures == 0 { // the watch has lost the object, and there is nothing to tell it
			return
		}
		if !m.fetch(ctx, &j) {
			return
		}
		n, merged = decide(j, time.Now())
	}
	if m.adoptStart(j) {
		m.again(uid)
		return
	}
	if n == write {
		if m.isRestrained(j) || !m.write(ctx, &j, merged) {
			return
		}
		n, merged = decide(j, time.Now())
	}
	if n == remove {
		m.remove(ctx, j)
		return
	}
	m.settle(j, merged)
}

// write sends the patch. It returns true when the server took it; j then knows the object as it is now.
func (m *Manager) write(ctx context.Context, j *job, merged *v1.PodStatus) bool {
	body, err := patch.Build(request(*j, merged))
	if err != nil {
		m.config.Logger.Error("Status cannot be written down", "pod", j.target.name.String(), "err", err)
		m.putOff(*j, refused, 0)
		return false
	}
	m.keepAhead(j.uid, j.version)
	answer, err := m.patch(ctx, j.target, body)
	result := classify(err)
	m.metrics.request("patch", result)
	m.heard(result, err)
	if result != done {
		m.failed(ctx, *j, result, err)
		return false
	}
	m.throttle.succeeded()
	j.target.version, j.target.status = answer.ResourceVersion, merged
	j.target.deleted = j.target.deleted || answer.DeletionTimestamp != nil
	m.acknowledge(*j)
	return true
}

func (m *Manager) patch(ctx context.Context, to target, body []byte) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, m.config.RequestTimeout)
	defer cancel()
	answer, err := m.config.API.PatchPodStatus(ctx, to.name.Namespace, to.name.Name, body)
	if err != nil {
		return nil, err
	}
	if answer.UID != to.uid || answer.ResourceVersion == "" {
		return nil, fmt.Errorf("patch status of pod %s: the answer is about UID %q, version %q; want UID %q",
			to.name, answer.UID, answer.ResourceVersion, to.uid)
	}
	return answer, nil
}

// request words the patch. It names the object's version, so that an earlier request that is still under way somewhere
// cannot land after it unseen (F9); unless others write so often that no version holds, and nothing of ours is under way.
func request(j job, merged *v1.PodStatus) patch.Request {
	r := patch.Request{UID: j.target.uid, ResourceVersion: j.target.version}
	if j.object.conflicts >= maxConflicts && !j.object.zombie {
		r.ResourceVersion = ""
	}
	status := *merged
	status.Conditions, r.Absent = conditionsToSend(merged.Conditions, j.target.status)
	r.Status = &status
	return r
}

// conditionsToSend picks the conditions that the node owns, and the shared one where this write changes it; absent are the
// owned types that should not be there.
func conditionsToSend(merged []v1.PodCondition, base *v1.PodStatus) (sent []v1.PodCondition, absent []v1.PodConditionType) {
	has := map[v1.PodConditionType]bool{}
	for _, condition := range merged {
		isNew := !slices.Contains(base.Conditions, condition)
		if derive.IsOwnedCondition(condition.Type) || (condition.Type == v1.DisruptionTarget && isNew) {
			sent = append(sent, condition)
			has[condition.Type] = true
		}
	}
	for _, kind := range derive.OwnedConditions() {
		if !has[kind] {
			absent = append(absent, kind)
		}
	}
	return sent, absent
}

// remove deletes the object of a pod that has ended (SM-73). A 409 says that the name has another UID by now.
func (m *Manager) remove(ctx context.Context, j job) {
	ctx, cancel := context.WithTimeout(ctx, m.config.RequestTimeout)
	defer cancel()
	err := m.config.API.DeletePod(ctx, j.target.name.Namespace, j.target.name.Name, j.target.uid)
	result := classify(err)
	m.metrics.request("delete", result)
	m.heard(result, err)
	switch result {
	case done, gone, stale, replaced:
		m.config.Logger.Debug("Pod has ended and is gone from the API server", "pod", j.target.name.String(), "uid", j.uid)
		m.mu.Lock()
		m.deleted[j.uid] = time.Now()
		m.mu.Unlock()
		m.drop(j.uid)
	default:
		m.retry(j, result, err)
	}
}
