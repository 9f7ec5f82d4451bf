package controlplane

import (
	"context"
	"strings"
)

// NewControllerManager returns a controller manager that runs the named controllers, each with the permissions of its own
// service account. It is not started yet, and serves nothing.
func (cp *ControlPlane) NewControllerManager(binary string, controllers ...string) (*Server, error) {
	return cp.newManager("kube-controller-manager", binary,
		"--use-service-account-credentials", "--controllers="+strings.Join(controllers, ","),
		"--root-ca-file="+cp.CAFile(), "--service-account-private-key-file="+cp.pkiPath(accountsKeyFile),
	)
}

// NewScheduler returns a scheduler. It is not started yet, and serves nothing.
func (cp *ControlPlane) NewScheduler(binary string) (*Server, error) {
	return cp.newManager("kube-scheduler", binary)
}

// newManager returns a component that only calls the API server, with the user name system:<name>.
func (cp *ControlPlane) newManager(name, binary string, args ...string) (*Server, error) {
	kubeconfig := cp.path(name + ".kubeconfig")
	if err := writeKubeconfig(kubeconfig, cp.config(cp.url, cp.ca.issueClient("system:"+name))); err != nil {
		return nil, err
	}
	return cp.NewServer(ServerConfig{
		Name:    name,
		Command: append([]string{binary, "--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0"}, args...),
		Ready:   func(context.Context) error { return nil }, // its work shows when it is ready
	}), nil
}
