// Package admission decides whether a node runs a pod, as the kubelet does, with the kubelet's reasons and messages. A
// rejected pod is never started: its phase is Failed, or Pending for a static pod.
//
// Unlike the kubelet, Herald does not preempt other pods for a critical one. It admits critical pods beyond the CPU, memory
// and storage of the node instead (ADM-26).
package admission
