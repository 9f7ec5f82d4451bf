package status

import (
	"errors"
	"io/fs"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

// restore takes over what an earlier process left. A file that cannot be read was set aside by the checkpoint: the statuses
// in it are derived anew from the runtime and the API server.
func (m *Manager) restore() {
	if m.kept.store == nil {
		return
	}
	file, err := m.kept.store.Load()
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			m.config.Logger.Error("Kept pod statuses cannot be read; going on without them", "err", err)
		}
		return
	}
	now := time.Now()
	for i := range file.Pods {
		p := &file.Pods[i]
		m.versions++
		e := &entry{
			uid: podid.UID(p.Pod.UID), pod: &v1.Pod{ObjectMeta: p.Pod}, status: &p.Status, finished: p.Finished,
			version: m.versions, unsentSince: now, newestAt: now, urgency: ordinary,
		}
		if derive.IsTerminal(p.Status.Phase) {
			e.urgency = releasing
		}
		m.entries[e.uid], m.kept.versions[e.uid] = e, e.version
		m.enqueue(e.uid, e.urgencyNow())
	}
}

// identity is as much of the pod's metadata as says which object its status belongs to.
func identity(pod *v1.Pod) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, DeletionTimestamp: pod.DeletionTimestamp,
	}
	for _, key := range []string{podid.SourceAnnotation, podid.HashAnnotation} {
		if value, found := pod.Annotations[key]; found {
			metav1.SetMetaDataAnnotation(&meta, key, value)
		}
	}
	return meta
}
