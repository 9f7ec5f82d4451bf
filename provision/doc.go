// Package provision provides a pod's containers with volumes and environment variables.
//
// A volume is a directory with the kubelet's path, Root/<uid>/volumes/kubernetes.io~<plugin>/<name>. A hostPath volume is
// the host's path itself. Files from the API server are written as the kubelet writes them, so that programs can watch
// their configuration: the visible files are links through ..data, which is swapped atomically. Readers see all of a change
// or nothing.
//
// Mount is called repeatedly, and each call updates the files. If they cannot be updated, the files on disk are kept and an
// event is recorded, but Mount does not fail. It fails only for volumes that have never been mounted.
//
// Objects of the API server are cached: pods share one request for an object, and get none that is older than they are.
// Objects that pods use for longer than Config.CacheTTL are watched, so that pods at rest cost no requests. A pod that reads
// an object for the first time still requests it, because a watch may lag behind the pod's creation.
//
// Whatever containers put into their volumes, nothing outside the volumes is written, removed or unmounted. The kernel
// enforces it (openat2, statx), which requires Linux 5.8 or newer.
//
// The sizeLimit of an emptyDir in memory is the size of its file system. On disk nothing stops a container; VolumeUsage lets the
// caller evict the pod.
//
// # Differences from the kubelet
//
//   - fsGroup applies to every volume except hostPath. fsGroupChangePolicy applies to volumes with persistent content,
//     which are not supported; for the supported kinds the kubelet ignores it too.
//   - An fsGroup that the process may not set is an error. The kubelet continues without it.
//   - Secrets, projected and downwardAPI volumes are in memory if the process may mount, else on disk; a volume that may
//     contain secrets is then accessible to the process's user only.
//   - clusterTrustBundle and podCertificate projections, huge pages and fileKeyRef are rejected, with the field's name.
//   - Variables have a fixed order. A name that no environment can hold, or a value with a NUL byte, is omitted from envFrom
//     with the event InvalidEnvironmentVariableNames, and is an error in env.
//   - While the API server is unreachable or slow, restarted containers get the last known values. A static pod never waits
//     for it.
package provision
