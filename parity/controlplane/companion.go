package controlplane

import "context"

// Companion is a program that works with the control plane, such as the agent of a node.
type ServerConfig struct {
	// Name is what errors call it, and the name of its log in Dir. Each companion has its own.
	Name string
	// Command is the program's path and its arguments, Env all of its environment.
	Command []string
	Env     []string
	// Ready asks once whether the program does its work.
	Ready func(context.Context) error
}

// NewServer describes a server that is not started yet. It is on the leash: it ends when the control plane does, if it is
// not ended before.
func (cp *ControlPlane) NewServer(c ServerConfig) *Server {
	return &Server{
		name: c.Name, binary: c.Command[0], args: c.Command[1:], env: append([]string{mark(cp.dir)}, c.Env...),
		log: cp.path(c.Name + ".log"), ready: c.Ready,
	}
}
