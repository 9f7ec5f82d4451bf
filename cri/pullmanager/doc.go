// Package pullmanager decides whether a pod may use an image that the node has already (KEP-2535).
//
// An image that was pulled with a credential is available to pods that have this credential, not to every pod on the node. The
// Manager records each pull on disk, as the kubelet does and in its files, so that a node can change hands:
//
//	pulling/sha256-<hash of the image name>     an intent, written before the pull
//	pulled/sha256-<hash of the image ID>        a record: for each image name, who may use the image
//
// An image without a record and without an intent was preloaded: an administrator or a tool put it there. Everything that cannot
// be known counts against the pod, which then pulls the image with its own credentials.
//
// # Differences from the kubelet
//
//   - Files are synced to disk. A record that a power failure removes would turn a private image into a preloaded one.
//   - An intent counts for every name of the image that its pull can create: busybox and docker.io/library/busybox:latest, a tag
//     and its digest, an image ID. The kubelet compares names as they are written.
//   - An intent is removed only when the result of the pull is known. The kubelet removes it after every failed call, although the
//     runtime may have completed the pull, for example when the agent or the runtime restarts.
//   - A secret with rotated content matches however many secrets are recorded. In the kubelet it does not from 100 on.
//   - Records are pruned by a complete list of images.
package pullmanager
