package explain

// Code describes a code for docs/explain.md and for readers of verdicts.
type Code struct {
	Name  string
	Class Class
	// Rule is the main rule that leads to it, of docs/behaviour.md or docs/node-rules.md. Empty if it follows from no rule.
	Rule string
	// Next is the next automatic step, Remedy what somebody can do.
	Next, Remedy string
}

// Codes returns all codes in the order of the decision tree.
func Codes() []Code { return append([]Code(nil), codes...) }

// ClassOf returns the class of a code. That of an unknown code is Problem.
func ClassOf(code string) Class {
	for i := range codes {
		if codes[i].Name == code {
			return codes[i].Class
		}
	}
	return Problem
}

var codes = []Code{
	{CodeNotFound, Problem, "", "none", "check name and namespace"},
	{CodeLeft, Ended, "", "none", "a new pod"},
	{CodeManifestRefused, Problem, "CFG-15", "the source is read again when it changes", "correct the manifest"},
	{CodeWaitsForName, Progress, "PW-15", "it starts when the earlier pod has ended", "wait"},
	{CodeWaitsForResources, Progress, "ADM-4", "it starts when the others have ended; if they do not, it is rejected", "wait"},
	{CodeRejected, Problem, "PH-49", "a static pod is tried again; no other is", "free what is missing; a new pod"},
	{CodeNoStatus, Progress, "SM-17", "the first status", "wait"},

	{CodeNotDeleted, Healthy, "", "none", "delete the pod"},
	{CodeStaticPod, Healthy, "PM-22", "none", "remove its manifest"},
	{CodeStopping, Ended, "PW-24", "it is killed when its grace period ends", "wait, or delete with a shorter grace period"},
	{CodePreStopHook, Ended, "PW-24", "it is killed when its grace period ends", "a shorter hook"},
	{CodeStopOverdue, Problem, "PW-37", "the kill is repeated", "look for a process in uninterruptible sleep, or a hanging runtime"},
	{CodeStopFailed, Problem, "PW-37", "the stop is repeated", "repair the container runtime"},
	{CodeCleaningUp, Ended, "PW-40", "volumes and cgroups are released", "wait"},
	{CodeCleanUpFailed, Problem, "PW-40", "the release is repeated", "end what holds the volumes"},
	{CodeDeletionNotSent, Problem, "SM-72", "the request is repeated", "repair the way to the API server"},
	{CodeFinalizer, Problem, "SM-73", "the finalizer's controller removes it", "see that controller"},
	{CodeDeleting, Ended, "SM-72", "the object is deleted", "wait"},

	{CodeSucceeded, Ended, "PH-10", "none: terminal is final", "a new pod"},
	{CodeFailed, Problem, "PH-10", "none: terminal is final", "correct the container; a new pod"},
	{CodeOOMKilled, Problem, "PH-10", "none: terminal is final", "a new pod with more memory"},
	{CodeInitFailed, Problem, "PH-6", "none: terminal is final", "correct the init container; a new pod"},
	{CodeDeadlineExceeded, Problem, "PH-19", "none: terminal is final", "a larger activeDeadlineSeconds; a new pod"},
	{CodeEvicted, Problem, "EVI-20", "none: terminal is final", "use less or raise the limits; a new pod"},
	{CodePreempted, Problem, "GEN-33", "none: terminal is final", "a new pod"},
	{CodeNodeShutdown, Problem, "GEN-33", "none: terminal is final", "a new pod"},
	{CodeContainerLost, Problem, "PH-28", "none: terminal is final", "a new pod"},
	{CodeForeignPhase, Problem, "PH-20", "none: terminal is final", "find out who wrote the phase; a new pod"},
	{CodeFailedForReason, Problem, "PH-18", "none: terminal is final", "see the message; a new pod"},

	{CodeRuntimeDown, Problem, "PLEG-2", "the runtime is asked again", "start or repair the container runtime"},
	{CodeRuntimeStale, Problem, "PLEG-11", "the runtime is observed again", "relieve or repair the container runtime"},
	{CodeNetworkNotReady, Problem, "PW-35", "the start is repeated", "install or repair the CNI network"},
	{CodeVolumeFailed, Problem, "PW-35", "the mount is repeated", "create or correct what the volume refers to"},
	{CodeMountingVolumes, Progress, "PW-35", "containers start when all volumes are mounted", "wait"},
	{CodeSandboxFailed, Problem, "GEN-24", "the creation is repeated", "correct what the runtime reports"},
	{CodeStartingSandbox, Progress, "GEN-24", "containers start in the sandbox", "wait"},

	{CodeInvalidImageName, Problem, "PH-31", "none: no attempt can succeed", "edit the image"},
	{CodeImageNeverPull, Problem, "IMG-18", "the start is repeated", "load the image, or edit imagePullPolicy"},
	{CodeImageNotFound, Problem, "PH-31", "the pull is repeated with back-off", "push the tag, or edit the image"},
	{CodeImageAccessDenied, Problem, "IMG-8", "the pull is repeated with back-off", "add or correct imagePullSecrets"},
	{CodeRegistryUnavailable, Problem, "PH-31", "the pull is repeated with back-off", "repair the registry, or the way to it"},
	{CodeSignatureInvalid, Problem, "PH-31", "the start is repeated", "sign the image, or edit it"},
	{CodeImagePull, Problem, "PH-31", "the pull is repeated with back-off", "see the message"},
	{CodeImageInspect, Problem, "PH-31", "the start is repeated", "repair the container runtime"},
	{CodeContainerConfig, Problem, "PH-31", "the start is repeated", "create what the container refers to"},
	{CodeCreateContainer, Problem, "PH-31", "the start is repeated", "see the message"},
	{CodeRunContainer, Problem, "PH-31", "the start is repeated", "correct command, mounts or security context"},
	{CodePostStartHook, Problem, "PH-31", "the start is repeated", "correct the hook"},
	{CodeStartError, Problem, "PH-31", "the start is repeated", "see the message"},

	{CodeInitRunning, Progress, "PH-7", "the next container starts when it has exited with 0", "wait, or set activeDeadlineSeconds"},
	{CodeInitFailing, Problem, "PH-1", "it is started again after its back-off", "see its last lines"},
	{CodeInitStarting, Progress, "PH-22", "it starts", "wait"},
	{CodeSidecarStarting, Progress, "PRB-17", "the startup probe is asked", "a sidecar that answers its startup probe"},

	{CodeCrashLoop, Problem, "PH-12", "it is started when its back-off is over", "see its last lines; an edit starts it at once"},
	{CodeContainerStopping, Progress, "PW-24", "it is killed when its grace period ends, and replaced", "wait"},
	{CodeLivenessFailed, Problem, "PRB-41", "it is killed, and replaced", "a probe that the container can answer"},
	{CodeStartupFailed, Problem, "PRB-41", "it is killed, and replaced", "a startup probe with more time"},
	{CodeContainerRestarting, Progress, "PH-33", "it is started again", "see how it ended"},
	{CodeRestartingAll, Progress, "GEN-34", "all containers are started again", "see which container exited"},
	{CodeContainerEnded, Problem, "SM-43", "none: its restart policy does not restart it", "a new pod"},
	{CodeStateUnknown, Problem, "PH-11", "the runtime is observed again", "repair the container runtime"},
	{CodeContainerCreating, Progress, "PH-22", "it starts", "wait"},
	{CodeSyncFailed, Problem, "PW-31", "the start is repeated", "see the message"},
	{CodeStartupPending, Progress, "PRB-17", "the startup probe is asked", "a container that answers its startup probe"},
	{CodeReadinessNotAsked, Progress, "PRB-15", "the readiness probe is asked", "wait, or a smaller initialDelaySeconds"},
	{CodeReadinessPending, Progress, "PRB-19", "the readiness probe is asked", "wait, or a smaller successThreshold"},
	{CodeReadinessFailing, Problem, "PRB-22", "the readiness probe is asked", "see its answer"},
	{CodeReadinessError, Problem, "PRB-18", "the readiness probe is asked", "repair the runtime or the network"},
	{CodeReadinessNotPassed, Problem, "PRB-33", "the readiness probe is asked", "see the probe"},

	{CodeGateMissing, Problem, "GEN-12", "its controller sets the condition", "see the controller of the gate"},
	{CodeGateNotTrue, Problem, "GEN-13", "its controller sets the condition", "see the controller of the gate"},
	{CodeStatusPending, Progress, "PW-32", "the status is computed again", "wait"},

	{CodeConditionOverwritten, Problem, "SM-53", "the status is repaired", "find out who wrote it, and why the node was NotReady"},
	{CodeAPIBehind, Problem, "SM-57", "the request is repeated", "repair the way to the API server"},
	{CodeStatusRefused, Problem, "SM-57", "the request is repeated", "see the API server's message"},
	{CodeObjectGone, Problem, "SM-56", "the pod is stopped when its source says so", "see who deleted it"},
	{CodeEphemeralFailed, Problem, "PH-5", "the start is repeated", "see the message"},
	{CodeResizeInfeasible, Problem, "RSZ-9", "none: it is tried again for another spec", "ask for other resources, or a pod on another node"},
	{CodeResizeDeferred, Problem, "RSZ-4", "it is tried when another pod goes or shrinks", "ask for less, or remove another pod of the node"},
	{CodeResizeFailed, Problem, "RSZ-20", "it is tried again", "see the message"},
	{CodeResizing, Progress, "RSZ-12", "the containers get their new limits", "wait"},
	{CodeUnstable, Problem, "PH-24", "none", "see its history and its last lines"},
	{CodeReady, Healthy, "GEN-14", "none", "none"},
	{CodeRunning, Healthy, "PH-8", "none", "none"},
	{CodeRestarted, Problem, "PH-24", "none", "see its history and its last lines"},
	{CodeNotRestarting, Healthy, "PH-36", "none", "none"},
}
