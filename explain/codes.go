package explain

// Class says what a code means for the pod.
type Class string

// The classes.
const (
	Healthy  Class = "healthy"  // nothing is wrong
	Ended    Class = "ended"    // the pod has ended, or ends as it should
	Progress Class = "progress" // a step is under way that usually ends by itself
	Problem  Class = "problem"  // something is wrong
)

// Codes of a pod that the node does not have, or does not run.
const (
	// CodeNotFound: the node does not have the pod, and its history does not say that it had.
	CodeNotFound = "NotFound"
	// CodeLeft: the node had the pod and does not have it any more.
	CodeLeft = "Left"
	// CodeManifestRefused: the newest manifest of the pod cannot be used.
	CodeManifestRefused = "ManifestRefused"
	// CodeWaitsForName: a static pod waits until an earlier pod with its name has ended.
	CodeWaitsForName = "WaitsForName"
	// CodeWaitsForResources: the pod waits until others that are ending have freed what it requests.
	CodeWaitsForResources = "WaitsForResources"
	// CodeRejected: the node does not admit the pod.
	CodeRejected = "Rejected"
	// CodeNoStatus: the pod has arrived and has no status yet.
	CodeNoStatus = "NoStatus"
)

// Codes of a pod that is being deleted, or of a question about its deletion.
const (
	// CodeNotDeleted: nobody deletes the pod.
	CodeNotDeleted = "NotDeleted"
	// CodeStaticPod: only its source can remove a static pod. Who deletes it in the API deletes its mirror pod.
	CodeStaticPod = "StaticPod"
	// CodeStopping: a container has not exited yet, and its grace period is not over.
	CodeStopping = "Stopping"
	// CodePreStopHook: the preStop hook of a container runs.
	CodePreStopHook = "PreStopHook"
	// CodeStopOverdue: a container still runs although its grace period is over.
	CodeStopOverdue = "StopOverdue"
	// CodeStopFailed: the containers could not be stopped.
	CodeStopFailed = "StopFailed"
	// CodeCleaningUp: the containers have ended, volumes and cgroups are being released.
	CodeCleaningUp = "CleaningUp"
	// CodeCleanUpFailed: the containers have ended, something of the pod could not be released.
	CodeCleanUpFailed = "CleanUpFailed"
	// CodeDeletionNotSent: the pod has ended here, the API server does not know it yet.
	CodeDeletionNotSent = "DeletionNotSent"
	// CodeFinalizer: the pod has ended here, and a finalizer keeps its object.
	CodeFinalizer = "Finalizer"
	// CodeDeleting: the pod is being deleted, and nothing is known to hold it up.
	CodeDeleting = "Deleting"
)

// Codes of a pod that has ended.
const (
	// CodeSucceeded: all containers have exited with 0, and none restarts.
	CodeSucceeded = "Succeeded"
	// CodeFailed: a container has failed and does not restart.
	CodeFailed = "Failed"
	// CodeOOMKilled: a container was killed for lack of memory and does not restart.
	CodeOOMKilled = "OOMKilled"
	// CodeInitFailed: an init container has failed and does not restart.
	CodeInitFailed = "InitContainerFailed"
	// CodeDeadlineExceeded: the pod ran longer than activeDeadlineSeconds.
	CodeDeadlineExceeded = "DeadlineExceeded"
	// CodeEvicted: the node stopped the pod because it used too much of a resource, or because the node lacked it.
	CodeEvicted = "Evicted"
	// CodePreempted: the node stopped the pod for a more important one.
	CodePreempted = "Preempted"
	// CodeNodeShutdown: the node was shut down.
	CodeNodeShutdown = "NodeShutdown"
	// CodeContainerLost: the end of a container was not observed, and it does not restart.
	CodeContainerLost = "ContainerStatusUnknown"
	// CodeForeignPhase: the phase is terminal, and no container explains it.
	CodeForeignPhase = "ForeignPhase"
	// CodeFailedForReason: the pod has failed for a reason of its status that is not listed here.
	CodeFailedForReason = "FailedForReason"
)

// Codes of the node.
const (
	// CodeRuntimeDown: the container runtime does not answer.
	CodeRuntimeDown = "RuntimeDown"
	// CodeRuntimeStale: the container runtime was not observed completely for minutes.
	CodeRuntimeStale = "RuntimeStale"
	// CodeNetworkNotReady: the node cannot give pods a network.
	CodeNetworkNotReady = "NetworkNotReady"
	// CodeMountingVolumes: volumes are being mounted.
	CodeMountingVolumes = "MountingVolumes"
	// CodeVolumeFailed: a volume could not be mounted.
	CodeVolumeFailed = "VolumeFailed"
	// CodeStartingSandbox: the sandbox is being created.
	CodeStartingSandbox = "StartingSandbox"
	// CodeSandboxFailed: the sandbox could not be created.
	CodeSandboxFailed = "SandboxFailed"
	// CodeSyncFailed: the last attempt to start the pod failed before its containers.
	CodeSyncFailed = "SyncFailed"
)

// Codes of images and of starts.
const (
	// CodeInvalidImageName: the image's name cannot be parsed. No attempt can succeed.
	CodeInvalidImageName = "InvalidImageName"
	// CodeImageNeverPull: the node does not have the image, and imagePullPolicy is Never.
	CodeImageNeverPull = "ErrImageNeverPull"
	// CodeImageNotFound: the registry does not have the image.
	CodeImageNotFound = "ImageNotFound"
	// CodeImageAccessDenied: the registry denies access to the image.
	CodeImageAccessDenied = "ImageAccessDenied"
	// CodeRegistryUnavailable: the registry does not answer, or refuses to serve now.
	CodeRegistryUnavailable = "RegistryUnavailable"
	// CodeSignatureInvalid: the signature of the image was not accepted.
	CodeSignatureInvalid = "SignatureValidationFailed"
	// CodeImagePull: the image could not be pulled for another reason.
	CodeImagePull = "ErrImagePull"
	// CodeImageInspect: the runtime could not say whether it has the image.
	CodeImageInspect = "ImageInspectError"
	// CodeContainerConfig: the container's configuration refers to something that is not there.
	CodeContainerConfig = "CreateContainerConfigError"
	// CodeCreateContainer: the runtime could not create the container.
	CodeCreateContainer = "CreateContainerError"
	// CodeRunContainer: the runtime could not start the container.
	CodeRunContainer = "RunContainerError"
	// CodePostStartHook: the postStart hook of the container failed.
	CodePostStartHook = "PostStartHookError"
	// CodeStartError: the container could not be started for a reason that is not listed here.
	CodeStartError = "StartError"
)

// Codes of init containers.
const (
	// CodeInitRunning: an init container runs.
	CodeInitRunning = "InitContainerRunning"
	// CodeInitFailing: an init container fails and is started again.
	CodeInitFailing = "InitContainerFailing"
	// CodeInitStarting: an init container is being started.
	CodeInitStarting = "InitContainerStarting"
	// CodeSidecarStarting: a sidecar runs and has not started: the next containers wait for it.
	CodeSidecarStarting = "SidecarNotStarted"
)

// Codes of containers.
const (
	// CodeCrashLoop: the container exits soon after each start and waits for the next one.
	CodeCrashLoop = "CrashLoopBackOff"
	// CodeContainerRestarting: the container has exited and is being started again.
	CodeContainerRestarting = "ContainerRestarting"
	// CodeRestartingAll: the exit of one container restarts all containers of the pod.
	CodeRestartingAll = "RestartingAllContainers"
	// CodeContainerEnded: the container has exited and does not restart, while others run.
	CodeContainerEnded = "ContainerEnded"
	// CodeStateUnknown: the runtime does not say in what state the container is.
	CodeStateUnknown = "ContainerStateUnknown"
	// CodeContainerCreating: the image is pulled, or the container is created.
	CodeContainerCreating = "ContainerCreating"
	// CodeContainerStopping: the container is being stopped to be replaced.
	CodeContainerStopping = "ContainerStopping"
	// CodeLivenessFailed: the container is being stopped because its liveness probe failed.
	CodeLivenessFailed = "LivenessProbeFailed"
	// CodeStartupFailed: the container is being stopped because its startup probe failed.
	CodeStartupFailed = "StartupProbeFailed"
	// CodeStartupPending: the startup probe has not passed yet.
	CodeStartupPending = "StartupProbePending"
	// CodeReadinessNotAsked: the readiness probe was not asked yet.
	CodeReadinessNotAsked = "ReadinessProbeNotAsked"
	// CodeReadinessPending: the readiness probe succeeds, and not often enough in a row yet.
	CodeReadinessPending = "ReadinessProbePending"
	// CodeReadinessFailing: the readiness probe fails.
	CodeReadinessFailing = "ReadinessProbeFailing"
	// CodeReadinessError: nobody could ask the readiness probe.
	CodeReadinessError = "ReadinessProbeError"
	// CodeReadinessNotPassed: the container has a readiness probe and is not ready; no more is known.
	CodeReadinessNotPassed = "ReadinessProbeNotPassed"
)

// Codes of conditions.
const (
	// CodeGateMissing: the condition of a readiness gate does not exist.
	CodeGateMissing = "ReadinessGateMissing"
	// CodeGateNotTrue: the condition of a readiness gate is not True.
	CodeGateNotTrue = "ReadinessGateNotTrue"
	// CodeStatusPending: all that the status depends on is well, and the status does not show it yet.
	CodeStatusPending = "StatusPending"
	// CodeConditionOverwritten: the pod is Ready here, and another writer has changed the API server's copy.
	CodeConditionOverwritten = "ConditionOverwritten"
	// CodeAPIBehind: the API server's copy of the status is older than the local one.
	CodeAPIBehind = "APIBehind"
	// CodeStatusRefused: the API server rejects the status.
	CodeStatusRefused = "StatusRefused"
	// CodeObjectGone: the pod runs here, and its object is not in the API.
	CodeObjectGone = "ObjectGone"
)

// Codes of a pod that is as it should be, or nearly.
const (
	// CodeReady: the pod is Ready.
	CodeReady = "Ready"
	// CodeRunning: the pod's phase is Running.
	CodeRunning = "Running"
	// CodeEphemeralFailed: an ephemeral container could not be started. It does not affect the pod.
	CodeEphemeralFailed = "EphemeralContainerFailed"
	// CodeResizeInfeasible: this node cannot give the pod the resources of its spec. It keeps those that it has.
	CodeResizeInfeasible = "ResizeInfeasible"
	// CodeResizeDeferred: the node has not enough left for the resources of the pod's spec. It keeps those that it has.
	CodeResizeDeferred = "ResizeDeferred"
	// CodeResizeFailed: the pod is allocated the resources of its spec, and they could not be applied.
	CodeResizeFailed = "ResizeFailed"
	// CodeResizing: the pod is allocated the resources of its spec, and they are being applied.
	CodeResizing = "Resizing"
	// CodeUnstable: the pod is Ready, and was not during parts of the last hour.
	CodeUnstable = "Unstable"
	// CodeRestarted: a container of the pod restarted in the last hour.
	CodeRestarted = "Restarted"
	// CodeNotRestarting: no container of the pod restarted in the last hour.
	CodeNotRestarting = "NotRestarting"
)
