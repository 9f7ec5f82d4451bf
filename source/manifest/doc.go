// Package manifest decodes the manifests of static pods. It returns pods that are ready to run, or errors with location,
// line and field. It is pure: no I/O, no goroutine, no clock, no log.
//
// Decode passes the content of a file or HTTP response through these steps, and stops at the first one that fails:
//
//	bytes -> documents -> values and their lines -> strict check -> v1.Pod -> defaults -> static pod -> validation
//
// Values are decoded with sigs.k8s.io/yaml, so that a manifest means the same as to the kubelet (`yes` is a boolean, `010`
// is eight). A second, line-aware parse serves error messages only. Unlike the kubelet, Decode drops nothing silently: it
// reads every document, and unknown fields and duplicate keys are errors (CFG-1, BUG-32).
//
// # UID
//
// A pod without metadata.uid gets a UID that is computed from its node, its source and its manifest as written. Formatting,
// key order, comments, file name and the defaults of later versions have no influence, so that none of them restarts a pod
// (BUG-20).
//
// # Fields that are discarded or rejected
//
//   - status and the fields that only the API server sets (creationTimestamp, resourceVersion, generation, selfLink,
//     managedFields) are discarded, so that the output of kubectl can be used as it is;
//   - deletionTimestamp, deletionGracePeriodSeconds, finalizers, ownerReferences, generateName and the mirror annotation are
//     rejected: the kubelet keeps them, and the result is a pod that terminates at once, cannot be removed, or is treated as
//     the mirror pod of another pod;
//   - references to API objects are rejected (CFG-10): a static pod works without an API server.
//
// # Stricter than the kubelet
//
// The kubelet accepts, and this package rejects: a negative terminationGracePeriodSeconds (which the kubelet changes to 1);
// Windows pods and options; a metadata.uid with characters that are unsafe in a path; hostPath volumes with a relative path;
// an image volume without a reference; an unknown emptyDir medium; a hostIP that is not an IP address; a storage driver's
// secretRef without a name; YAML tags other than the core ones; keys that YAML does not read as the text that is written
// (`1.10:`); a merge key after a key that it also sets; quantities of more than 40 characters or with an exponent of three
// digits (1e-100000000 takes a minute to parse).
// Apart from an invalid status, which is not read, everything that the kubelet rejects is rejected.
package manifest
