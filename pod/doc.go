// Package pod keeps the node's address book of pods, and one mirror in the API server for each static pod.
//
// A static pod comes from a file or a URL and needs no API server. So that the cluster can see it, a mirror stands
// for it there: a copy under the same full name, with a UID of the server's own making.
//
//	the node                                        the API server
//
//	manifest --> static pod                         mirror pod
//	             UID: podid.UID                     UID: podid.MirrorUID
//	             name: etcd-n1_kube-system  <====>  name: etcd-n1_kube-system
//	             config.hash: 9f3c          <====>  config.mirror: 9f3c
//	               |                                  ^           |
//	               v                                  |           |
//	            Manager ----> Mirrors ----------------+           |
//	               ^                  create, delete              |
//	               |                                              |
//	               +----------------------------------------------+
//	                                   watch
//
// [Manager] holds both halves and translates between their UIDs. It decides nothing and calls nobody. A mirror is never
// a pod to run: no reader that returns pods to run ever returns one.
//
// [Mirrors] makes the right half follow the left one. It depends on no pod worker: a static pod that the Manager
// holds has a mirror, whether it runs, waits or has finished.
//
// A pod belongs to everybody once it was handed to this package or was returned by it: nobody changes it any more.
package pod
