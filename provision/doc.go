// Package provision gives a pod's containers what they find on their node: volumes as folders, the environment as
// variables.
//
// A volume is a folder under the kubelet's name for it, Root/<uid>/volumes/kubernetes.io~<plugin>/<name>; a hostPath is
// where it says. What comes from the API server is written as the kubelet writes it, so that programs which watch their
// configuration work: the visible files are links through ..data, which is swapped in one step, and readers see all of a
// change or nothing.
//
// Mount is called again and again, and each call brings the files up to date. What cannot be read again stays as it is on
// disk, is told as an event, and fails nothing; only what was never mounted is an error.
//
// Whatever containers put into their volumes, nothing is written, removed or unmounted outside of them. The kernel sees to
// it (openat2, statx); it must be Linux 5.8 or newer.
//
// # What differs from the kubelet, or is less
//
//   - The sizeLimit of an emptyDir on disk is not enforced. The kubelet evicts the pod, later; in memory it is enforced.
//   - fsGroup holds for every volume but hostPath. fsGroupChangePolicy is about volumes with content of their own, of
//     which there are none here; for the kubelet it means nothing for these kinds either.
//   - An fsGroup that the process may not set is an error. The kubelet goes on without it.
//   - Secrets and projected volumes are in memory when the process may mount; else in a folder that only its user enters.
//   - downwardAPI volumes are on disk: nothing in them is secret.
//   - clusterTrustBundle and podCertificate projections, huge pages and fileKeyRef are refused, by name.
//   - Variables come in a fixed order. A name that no environment can hold, or a value with a NUL byte, is left out of
//     envFrom with the event InvalidEnvironmentVariableNames, and is an error in env.
//   - While the API server cannot be reached, containers that start again get what it said last.
package provision
