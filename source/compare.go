package source

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/heraldnode/herald/podid"
)

// compare says what the newer version of a known pod means to a consumer that has the older one; 0 is nothing.
func compare(older, newer *v1.Pod) Op {
	switch {
	case older.ResourceVersion != "" && older.ResourceVersion == newer.ResourceVersion:
		return 0 // the API server's word that it is the same object
	case !sameDesire(older, newer):
		if newer.DeletionTimestamp != nil {
			return OpDelete
		}
		return OpUpdate
	case !equality.Semantic.DeepEqual(&older.Status, &newer.Status), !sameMetadata(older, newer):
		return OpReconcile
	default:
		return 0
	}
}

// sameDesire reports whether both versions ask for the same to run (CFG-37). The cheap fields come first.
func sameDesire(a, b *v1.Pod) bool {
	return a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		maps.Equal(a.Labels, b.Labels) &&
		sameAnnotations(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(&a.Spec, &b.Spec)
}

// sameMetadata compares what tells how new a copy is and who cares for it. Managed fields are left out: they say who
// wrote a field, not what is in it.
func sameMetadata(a, b *v1.Pod) bool {
	return a.ResourceVersion == b.ResourceVersion &&
		a.Generation == b.Generation &&
		slices.Equal(a.Finalizers, b.Finalizers) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// isLocal reports whether an annotation is this node's own: never compared, never overwritten from outside (CFG-38).
func isLocal(key string) bool {
	return key == podid.SourceAnnotation || key == podid.MirrorAnnotation || key == podid.SeenAnnotation
}

func sameAnnotations(a, b map[string]string) bool {
	return containsForeign(a, b) && containsForeign(b, a)
}

// containsForeign reports whether every annotation of sub that is not local is in all, with the same value.
func containsForeign(all, sub map[string]string) bool {
	for key, value := range sub {
		if isLocal(key) {
			continue
		}
		if other, found := all[key]; !found || other != value {
			return false
		}
	}
	return true
}

// adopt makes the object that consumers get: the source's, with this node's annotations (CFG-6). A pod that was known
// before keeps the ones it had. Only the annotations are copied; everything else is shared with what the source gave.
func adopt(source podid.Source, pod, before *v1.Pod, now time.Time) *v1.Pod {
	adopted := *pod
	adopted.Annotations = make(map[string]string, len(pod.Annotations)+2)
	maps.Copy(adopted.Annotations, pod.Annotations)
	if before == nil {
		adopted.Annotations[podid.SourceAnnotation] = string(source)
		adopted.Annotations[podid.SeenAnnotation] = now.Format(time.RFC3339Nano)
		return &adopted
	}
	maps.DeleteFunc(adopted.Annotations, func(key, _ string) bool { return isLocal(key) })
	for key, value := range before.Annotations {
		if isLocal(key) {
			adopted.Annotations[key] = value
		}
	}
	return &adopted
}
