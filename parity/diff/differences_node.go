package diff

// onNode are the differences in what a node admits, needs and retries. The kubelet cannot be run up to these points in a
// test, so some are shown on Herald's side only.
var onNode = []Difference{
	{
		Rule:    "ADM-26",
		Kubelet: "kills other pods to admit a critical one, one after the other, and decides on no other pod meanwhile",
		Herald:  "ends the same pods at once; the critical pod waits for them as Pending, and others are decided on",
		Why:     "the grace period of one pod must not delay all others",
		Shown:   "nodeagent/TestADM26_Preemption",
	},
	{
		Rule:    "ADM-28",
		Kubelet: "rejects a critical pod for which nothing can be ended with the reason UnexpectedAdmissionError",
		Herald:  "rejects it with the reason OutOf... of the resource, as any other pod",
		Why:     "the reason says what is missing",
		Shown:   "admission/TestADM28_NoVictims",
	},
	{
		Rule:    "ADM-4",
		Kubelet: "rejects a pod for which there is no room because others are still ending",
		Herald:  "lets it wait as Pending until they have ended, at most for one and a half times their grace period",
		Why:     "the scheduler saw room; its controller would create the pod again and again (ADM-4)",
		Shown:   "nodeagent/TestADM4_WaitsForEndingPods",
	},
	{
		Rule:    "ADM-29",
		Kubelet: "decides on all pods again when it starts, and ends a running pod that a label, a taint or a port now forbids",
		Herald:  "admits a pod that runs",
		Why:     "a restart, or taking over a node from another agent, ends no pod",
		Shown:   "worker/TestAdmission_RunningAPIPod",
	},
	{
		Rule:    "PW-31",
		Kubelet: "retries a failed sync after 10 to 15 s",
		Herald:  "retries it after 100 ms, doubling up to 10 s",
		Why:     "many failures last for a moment only, like a cache of the API server that does not have the pod yet",
		Shown:   "worker/TestPW31_RetryInterval",
	},
	{
		Rule:    "CFG-9",
		Kubelet: "accepts a seccomp annotation and ignores it",
		Herald:  "rejects it unless the field seccompProfile says the same",
		Why:     "a pod does not run without the profile that its author asked for",
		Shown:   "TestCFG9_SeccompAnnotation",
	},
	{
		Rule:    "-",
		Kubelet: "reports DiskPressure for the file systems of its root directory and of images",
		Herald:  "reports it for the file system of container logs too",
		Why:     "logs on a separate disk fill up as well",
		Shown:   "node/report/TestPressures_Thresholds",
	},
	{
		Rule:    "-",
		Kubelet: "does not start if it cannot write cgroups",
		Herald:  "runs pods in the cgroups that the runtime chooses, with a warning",
		Why:     "it can run in a container and on machines without delegated cgroups",
		Shown:   "cgroup/manager/TestManager_NotWritable",
	},
}
