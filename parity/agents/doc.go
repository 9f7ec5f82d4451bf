// Package nodeagent runs whole agents of nodes, Herald's and the real kubelet, each as the process that it is in production,
// on a control plane and a containerd that the caller has.
//
//	kubelet, err := nodeagent.Kubelet(ctx, os.Stderr)
//	agent, err := kubelet.On(nodeagent.Place{Cluster: cluster, Runtime: runtime, Node: "a"})
//	err = agent.Start(ctx) // returns when the Node is Ready
//	...
//	err = agent.Stop()
//
// Both are left at their defaults, the limits of their API clients among them, but for their folders, addresses and cgroups,
// and for what keeps a kubelet from disturbing the machine, which kubelet.yaml and room.sh say. Everything that an agent
// writes is in the containerd's folder and goes with it. An agent ends with the control plane at the latest.
package agents
