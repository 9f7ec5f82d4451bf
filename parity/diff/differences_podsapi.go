package diff

// podsServed lists differences of the Pods API. The rules are described in docs/server.md.
var podsServed = []Difference{
	{
		Rule:    "PGA-3",
		Kubelet: "does not find a static pod in the Pods API by the UID of its mirror pod, the only one that the API server shows",
		Herald:  "finds it by both UIDs",
		Why:     "clients need not know static pods",
		Shown:   "TestPGA3_MirrorPod",
	},
	{
		Rule:    "PGA-4",
		Kubelet: "sends DELETED for a pod that has ended, and lists it still",
		Herald:  "sends DELETED when it no longer lists the pod",
		Why:     "a list and a watch agree, and the end of a pod can be seen",
		Shown:   "TestPGA4_FinishedPod",
	},
	{
		Rule:    "PGA-5",
		Kubelet: "may send a pod twice as ADDED, and a change that is older than the pod of the snapshot",
		Herald:  "sends no version twice, and none after a newer one",
		Why:     "clients need no versions of their own",
		Shown:   "podsapi/TestPGA5_Sequences",
	},
	{
		Rule:    "PGA-6",
		Kubelet: "ends the watch of a client that is 100 changes behind, and drops changes for all clients beyond 1000",
		Herald:  "keeps the UIDs of changed pods, and sends the newest version of each",
		Why:     "a slow client has the node's state as soon as it reads again, for a bounded amount of memory",
		Shown:   "podsapi/TestPGA6_SlowClient",
	},
	{
		Rule:    "PGA-7",
		Kubelet: "does not announce a change of the spec until the status changes",
		Herald:  "announces it at once",
		Why:     "clients see labels, annotations and deletions",
		Shown:   "TestPGA7_SpecOnly",
	},
	{
		Rule:    "PGA-7",
		Kubelet: "lists the pods that it knows before its sources are complete",
		Herald:  "answers FailedPrecondition",
		Why:     "a pod that is not listed is not on the node",
		Shown:   "podsapi/TestPGA7_NotReady",
	},
}
