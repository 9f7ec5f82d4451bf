// Package controlplane runs a real etcd and a real kube-apiserver for tests, and breaks them on demand.
//
//	func TestSomething(t *testing.T) {
//		cp := controlplane.ForTest(t)
//		node, err := cp.CreateNode(t.Context(), "a")
//		client, err := kubernetes.NewForConfig(cp.NodeConfig("a"))
//		...
//		cp.APIServer.Kill()
//
// Both servers are built from their Go modules ([Build]) and run as child processes on loopback, with TLS everywhere and
// the authorization of a production cluster: Node and RBAC authorizers, the NodeRestriction admission plugin, no anonymous
// requests. A test that talks to it as [ControlPlane.NodeConfig] may do exactly what a kubelet may do.
//
// There is no controller manager and no scheduler: nobody deletes pods of lost nodes, binds pods or makes service accounts.
// This is why the ServiceAccount admission plugin is off. It refuses every pod whose service account does not exist, and
// the "default" one of each namespace is the controller manager's work.
//
// Agents of nodes that are programs of their own run beside it as companions ([ControlPlane.NewServer]). [BuildKubelet]
// builds the one that everybody knows.
//
// # Breaking things
//
// [ControlPlane.Etcd] and [ControlPlane.APIServer] can be stopped, killed, frozen and started again with their data and on
// their port. [ControlPlane.NewProxy] puts a fault.Injector between the API server and clients in any process.
//
// # Leaving nothing behind
//
// A third process, the leash, holds one end of a pipe whose other end only the process that called [Start] has. However
// that process ends (Stop, a panic, SIGINT, SIGKILL), the kernel closes the pipe, and the leash kills the servers and
// removes their folder. [ControlPlane.Stop] closes the pipe too: there is one way to clean up, and every run takes it.
//
// The package needs Linux (/proc) and the Go command.
package controlplane
