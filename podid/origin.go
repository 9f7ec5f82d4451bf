package podid

// Source says where a pod came from. The values are the kubelet's and stand in the pod's source annotation.
type Source string

// The sources that a node has.
const (
	File Source = "file"
	HTTP Source = "http"
	API  Source = "api"
)

// The annotations that tell a pod's origin, under the kubelet's keys. All but the hash are local to this node: they are
// neither compared nor overwritten when a pod is updated (CFG-38).
const (
	SourceAnnotation = "kubernetes.io/config.source" // where it came from: a Source
	HashAnnotation   = "kubernetes.io/config.hash"   // what its manifest said: equal hash, same pod
	MirrorAnnotation = "kubernetes.io/config.mirror" // on a mirror only: the static pod's hash
	SeenAnnotation   = "kubernetes.io/config.seen"   // when this agent first saw it, RFC 3339 with nanoseconds
)

// annotated is the part of a Kubernetes object that the questions below read.
type annotated interface {
	GetAnnotations() map[string]string
}

// IsMirror reports whether the pod is an API server's reflection of a static pod. The annotation decides, whatever its
// value; even an empty one.
func IsMirror(pod annotated) bool {
	_, marked := pod.GetAnnotations()[MirrorAnnotation]
	return marked
}

// IsStatic reports whether the pod came from a file or a URL. A pod without a source annotation is not static.
func IsStatic(pod annotated) bool {
	source, known := pod.GetAnnotations()[SourceAnnotation]
	return known && Source(source) != API
}

// SourceOf is the pod's source, or "" when it carries none.
func SourceOf(pod annotated) Source { return Source(pod.GetAnnotations()[SourceAnnotation]) }

// HashOf is the hash of a static pod's manifest, or "".
func HashOf(pod annotated) string { return pod.GetAnnotations()[HashAnnotation] }

// IsMirrorOf reports whether mirror is the reflection of exactly this static pod: same full name, and the mirror's
// annotation equals the static pod's hash. Specs are never compared, because the API server defaults them (PM-21).
func IsMirrorOf(mirror, static interface {
	named
	annotated
}) bool {
	hash, marked := mirror.GetAnnotations()[MirrorAnnotation]
	return marked && hash == HashOf(static) && FullNameOf(mirror) == FullNameOf(static)
}
