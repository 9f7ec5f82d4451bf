// Package controlplane runs a real etcd and a real kube-apiserver for tests, and breaks them on demand.
//
//	func TestSomething(t *testing.T) {
//		cp := controlplane.ForTest(t)
//		node, err := cp.CreateNode(t.Context(), "a")
//		client, err := kubernetes.NewForConfig(cp.NodeConfig("a"))
//		...
//		cp.APIServer.Kill()
//
// [Build] builds both servers from their Go modules. They run as child processes on loopback, with TLS everywhere and the
// authorization of a production cluster: Node and RBAC authorizers, the NodeRestriction admission plugin, no anonymous
// requests. A client with [ControlPlane.NodeConfig] has exactly the permissions of a kubelet.
//
// There is no scheduler and no controller manager unless a test starts them with [ControlPlane.NewScheduler] and
// [ControlPlane.NewControllerManager]. Pods of lost nodes are not deleted, pods are not bound, and service accounts are not created. The
// ServiceAccount admission plugin is off for this reason, unless Config.ServiceAccounts is set: it rejects pods whose service account
// does not exist, and the controller manager creates the "default" account of each namespace.
//
// The API server calls node agents at their InternalIP, with a certificate of the user [KubeletClientUser]. An agent that trusts
// [ControlPlane.CAFile] and asks for authorization accepts it; [ControlPlane.IssueClient] makes other users.
//
// [ControlPlane.NewServer] runs other programs beside the control plane, such as node agents. [BuildKubelet] builds the kubelet.
//
// # Fault injection
//
// [ControlPlane.Etcd] and [ControlPlane.APIServer] can be stopped, killed, frozen and restarted with their data and on their
// port. [ControlPlane.NewProxy] puts a fault.Injector between the API server and clients in any process.
//
// # Cleanup
//
// A supervisor process holds one end of a pipe. Only the process that called [Start] has the other end. However that process
// ends (Stop, a panic, SIGINT, SIGKILL), the kernel closes the pipe; the supervisor then kills the servers and removes their
// directory. [ControlPlane.Stop] closes the pipe too, so every run uses the same cleanup.
//
// The package requires Linux (/proc) and the go command.
package controlplane
