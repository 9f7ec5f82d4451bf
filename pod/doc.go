// Package pod provides the Pod Manager: the pods assigned to this node, and the mapping between static and mirror pods.
//
// A static pod comes from a file or a URL. Its mirror pod in the API server has the same full name and another UID. The
// [Manager] holds both and translates between their UIDs. It has no goroutines and makes no requests; package pod/mirror
// creates and deletes mirror pods.
//
// A mirror pod is never a pod to run: no method that returns pods to run returns a mirror pod.
//
// Pods are immutable once they are passed to or returned by this package.
package pod
