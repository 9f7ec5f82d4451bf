// Package podid provides typed pod identities.
//
// A static pod and its mirror pod share a full name but have different UIDs. Confusing the two is a classic mistake in the
// kubelet; with UID and MirrorUID it does not compile.
package podid

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// UID identifies a pod that this node runs, whatever its source. For a static pod it is the UID computed from the manifest,
// never that of the mirror pod (the kubelet's ResolvedPodUID).
type UID types.UID

// MirrorUID identifies a mirror pod: the API object that represents a static pod.
type MirrorUID types.UID

// FullName is the name that a static pod and its mirror pod share. At any time a node runs at most one pod with a full name.
type FullName struct {
	Namespace, Name string
}

// ErrInvalidFullName is wrapped by every error of ParseFullName.
var ErrInvalidFullName = errors.New("invalid full name: want <name>_<namespace>")

// ParseFullName parses the kubelet's format, <name>_<namespace>: exactly one underscore and two non-empty parts.
func ParseFullName(s string) (FullName, error) {
	name, namespace, found := strings.Cut(s, "_")
	if !found || name == "" || namespace == "" || strings.Contains(namespace, "_") {
		return FullName{}, fmt.Errorf("%q: %w", s, ErrInvalidFullName)
	}
	return FullName{Namespace: namespace, Name: name}, nil
}

// String returns the format that ParseFullName parses.
func (n FullName) String() string { return n.Name + "_" + n.Namespace }

// Key returns namespace/name, the format of logs and of client-go's cache keys.
func (n FullName) Key() string { return n.Namespace + "/" + n.Name }

// named is the part of a Kubernetes object that FullNameOf reads.
type named interface {
	GetName() string
	GetNamespace() string
}

// FullNameOf returns the full name of a pod. It does not allocate.
func FullNameOf(pod named) FullName {
	return FullName{Namespace: pod.GetNamespace(), Name: pod.GetName()}
}

// Source is where a pod comes from: the kubelet's values of SourceAnnotation.
type Source string

// Sources of pods.
const (
	File Source = "file"
	HTTP Source = "http"
	API  Source = "api"
)

// Annotations that describe a pod's origin, under the kubelet's keys. All but HashAnnotation are local to the node: an update
// of the pod neither compares nor overwrites them (CFG-38).
const (
	SourceAnnotation = "kubernetes.io/config.source" // the pod's Source
	HashAnnotation   = "kubernetes.io/config.hash"   // hash of the manifest
	MirrorAnnotation = "kubernetes.io/config.mirror" // on mirror pods only: hash of the static pod
	SeenAnnotation   = "kubernetes.io/config.seen"   // when this agent first saw the pod, in RFC 3339 with nanoseconds
)

// annotated is the part of a Kubernetes object that the functions below read.
type annotated interface {
	GetAnnotations() map[string]string
}

// IsMirror reports whether the pod is a mirror pod. The presence of the annotation decides; its value may be empty.
func IsMirror(pod annotated) bool {
	_, found := pod.GetAnnotations()[MirrorAnnotation]
	return found
}

// IsStatic reports whether the pod comes from a file or a URL. A pod without source annotation is not static.
func IsStatic(pod annotated) bool {
	source, found := pod.GetAnnotations()[SourceAnnotation]
	return found && Source(source) != API
}

// SourceOf returns the pod's source, or "".
func SourceOf(pod annotated) Source { return Source(pod.GetAnnotations()[SourceAnnotation]) }

// HashOf returns the hash of a static pod's manifest, or "".
func HashOf(pod annotated) string { return pod.GetAnnotations()[HashAnnotation] }

// IsMirrorOf reports whether mirror is the mirror pod of exactly this static pod: it has the same full name, and its mirror
// annotation equals the static pod's hash. Specs are not compared, because the API server sets defaults (PM-21).
func IsMirrorOf(mirror, static interface {
	named
	annotated
}) bool {
	hash, found := mirror.GetAnnotations()[MirrorAnnotation]
	return found && hash == HashOf(static) && FullNameOf(mirror) == FullNameOf(static)
}
