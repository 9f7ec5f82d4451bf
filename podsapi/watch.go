package podsapi

import (
	"crypto/sha256"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// WatchPods implements v1alpha1.PodsServer. It sends the pods as ADDED by UID, INITIAL_SYNC_COMPLETE, and then the changes (PGA-4).
//
// The subscription begins before the snapshot, and a changed pod is read when it is sent: nothing is missed, and no version follows a
// newer one (PGA-5). While the client does not read, changed pods wait as UIDs, each once (PGA-6).
func (s *Server) WatchPods(_ *v1alpha1.WatchPodsRequest, stream grpc.ServerStreamingServer[v1alpha1.WatchPodsEvent]) error {
	if err := s.checkReady(); err != nil {
		return err
	}
	w := &watcher{agent: s.config.Agent, send: stream.Send, sent: map[types.UID]sentPod{}}
	changes := s.config.Agent.ChangedPods(stream.Context())
	for _, pod := range s.listPods() {
		if err := w.update(pod); err != nil {
			return err
		}
	}
	if err := stream.Send(&v1alpha1.WatchPodsEvent{Type: v1alpha1.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	for uids := range changes {
		for _, uid := range uids {
			if err := w.refresh(uid); err != nil {
				return err
			}
		}
	}
	return stream.Context().Err()
}

// watcher is one watch. It is owned by the goroutine of its request.
type watcher struct {
	agent Agent
	send  func(*v1alpha1.WatchPodsEvent) error
	sent  map[types.UID]sentPod
}

// sentPod is what the client has of a pod. The object is shared with the agent.
type sentPod struct {
	pod    *v1.Pod
	digest [sha256.Size]byte
}

// refresh sends what the client does not have of a pod.
func (w *watcher) refresh(uid types.UID) error {
	if pod, found := w.agent.LocalPodByUID(uid); found && pod.UID == uid {
		return w.update(pod)
	}
	sent, found := w.sent[uid]
	if !found {
		return nil
	}
	delete(w.sent, uid)
	data, err := marshal(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: sent.pod.Namespace, Name: sent.pod.Name, UID: uid}})
	if err != nil {
		return err
	}
	return w.send(&v1alpha1.WatchPodsEvent{Type: v1alpha1.EventType_DELETED, Pod: data})
}

// update sends the pod unless the client has it.
func (w *watcher) update(pod *v1.Pod) error {
	sent, found := w.sent[pod.UID]
	if found && pod.Generation < sent.pod.Generation {
		// The pod is not desired any more, and a worker that is ending it has an earlier spec. It must not go back (PGA-5).
		newest := *sent.pod
		newest.Status, pod = pod.Status, &newest
	}
	data, err := marshal(pod)
	if err != nil {
		return err
	}
	next := sentPod{pod, sha256.Sum256(data)}
	event := &v1alpha1.WatchPodsEvent{Type: v1alpha1.EventType_ADDED, Pod: data}
	if found {
		if sent.digest == next.digest {
			return nil
		}
		event.Type = v1alpha1.EventType_MODIFIED
	}
	w.sent[pod.UID] = next
	return w.send(event)
}
