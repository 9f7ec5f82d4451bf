// Package podid holds the names by which a node knows its pods, as types that cannot be mixed up.
//
// A static pod and its mirror share a full name but have different UIDs. Handing one UID where the other is meant is the
// kubelet's classic mistake; here it does not compile.
package podid

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// UID identifies a pod that this node runs, whichever source it came from. For a static pod it is the UID that was made
// from its manifest, never that of its mirror (the kubelet calls it the resolved UID).
type UID types.UID

// MirrorUID identifies a mirror pod: the API server's object that reflects a static pod.
type MirrorUID types.UID

// FullName is what a static pod and its mirror have in common, and what no two pods of a node may share at one time.
type FullName struct {
	Namespace, Name string
}

// ErrInvalidFullName is wrapped by every error of ParseFullName.
var ErrInvalidFullName = errors.New("not a pod's full name: want <name>_<namespace>")

// ParseFullName reads the kubelet's written form, <name>_<namespace>: exactly one underscore, two non-empty parts.
func ParseFullName(s string) (FullName, error) {
	name, namespace, found := strings.Cut(s, "_")
	if !found || name == "" || namespace == "" || strings.Contains(namespace, "_") {
		return FullName{}, fmt.Errorf("%q: %w", s, ErrInvalidFullName)
	}
	return FullName{Namespace: namespace, Name: name}, nil
}

// String is the written form that ParseFullName reads.
func (n FullName) String() string { return n.Name + "_" + n.Namespace }

// Key returns namespace/name, the form of logs and of client-go's cache keys.
func (n FullName) Key() string { return n.Namespace + "/" + n.Name }

// named is the part of a Kubernetes object that FullNameOf reads.
type named interface {
	GetName() string
	GetNamespace() string
}

// FullNameOf is the full name of a pod, static or mirror. It does not allocate.
func FullNameOf(pod named) FullName {
	return FullName{Namespace: pod.GetNamespace(), Name: pod.GetName()}
}
