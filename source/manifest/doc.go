// Package manifest turns what the author of a static pod wrote into pods that are ready to run, or into errors that name
// the place, the line and the field. It is pure: no I/O, no goroutine, no clock, no log.
//
// Decode takes the bytes of a file or of an HTTP body through these steps, and stops at the first one that fails:
//
//	bytes -> documents -> values and their lines -> strict check -> v1.Pod -> defaults -> static pod -> validation
//
// Values are those of sigs.k8s.io/yaml, so that a manifest means here what it means to the kubelet (`yes` is a boolean,
// `010` is eight); a second, line-aware parse serves the messages only. Nothing is dropped in silence, as the kubelet does:
// every document is read, and unknown fields and duplicate keys are errors (CFG-1, BUG-32).
//
// # Identity
//
// A pod without metadata.uid gets one made of its node, its source and its manifest as written. Formatting, order of
// keys, comments, the file's name, and whatever a later version fills in as a default have no part in it, so that none of
// them restarts a pod (BUG-20).
//
// # What an author may not set
//
//   - status and what only the API server writes (creationTimestamp, resourceVersion, generation, selfLink,
//     managedFields) are discarded, so that they can stay in what kubectl printed;
//   - deletionTimestamp, deletionGracePeriodSeconds, finalizers, ownerReferences, generateName and the mirror annotation
//     are refused: the kubelet keeps them, and they make a pod that is born dying, that nobody can release, or that the
//     node takes for the API server's reflection of another;
//   - references to API objects are refused (CFG-10): a static pod works without an API server.
//
// # Stricter than the kubelet
//
// The kubelet accepts, and this package refuses: a negative terminationGracePeriodSeconds (there it becomes 1); Windows
// pods and options; a metadata.uid with characters that do not belong into a path; hostPath volumes that are not
// absolute; an image volume without a reference; an unknown emptyDir medium; a hostIP that is no address; a storage
// driver's secretRef without a name; YAML tags beyond the core ones; keys that YAML does not read as the text that is
// written (`1.10:`); a merge below a key that it also sets; quantities of more than 40 characters or with an exponent of
// three digits (1e-100000000 keeps the parser busy for a minute).
// Apart from a broken status, which is not read, nothing that the kubelet refuses is accepted.
package manifest
