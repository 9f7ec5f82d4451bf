// Package mirror maintains one mirror pod in the API server for each static pod.
//
// A static pod comes from a file or a URL and needs no API server. Its mirror pod makes it visible to the cluster: a copy
// under the same full name, with a UID that the API server assigns.
//
//	node                                            API server
//
//	manifest --> static pod                         mirror pod
//	             UID: podid.UID                     UID: podid.MirrorUID
//	             name: etcd-n1_kube-system  <====>  name: etcd-n1_kube-system
//	             config.hash: 9f3c          <====>  config.mirror: 9f3c
//	               |                                  ^           |
//	               v                                  |           |
//	          pod.Manager --> Reconciler -------------+           |
//	               ^                    create, delete            |
//	               |                                              |
//	               +----------------------------------------------+
//	                                   watch
//
// The [Reconciler] is independent of the pod workers: every static pod that the pod manager holds has a mirror pod, whether
// it runs, waits or has finished. [State.Decide] is the whole policy, a pure function.
//
// The caller starts [Reconciler.Run] once and calls [Reconciler.Enqueue] after each change to the pod manager that concerns
// a static or mirror pod. A missed call is made up for by the periodic resync.
package mirror
