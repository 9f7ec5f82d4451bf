// Package admission decides whether a node runs a pod, as the kubelet does, with the kubelet's reasons and messages. A
// rejected pod is never started: its phase is Failed, or Pending for a static pod.
//
// A pod waits for resources that others are about to free. For a critical pod, others are chosen that end (ADM-26).
package admission
