package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) checkPorts(at *field.Path, ports []v1.ContainerPort) {
	names := make(map[string]bool)
	for i, port := range ports {
		at := at.Index(i)
		if port.Name != "" {
			c.invalid(at.Child("name"), port.Name, validation.IsValidPortName(port.Name)...)
			unique(c, at.Child("name"), names, port.Name)
		}
		if port.ContainerPort == 0 {
			c.required(at.Child("containerPort"), "")
		} else {
			c.checkPort(at.Child("containerPort"), port.ContainerPort)
		}
		if port.HostPort != 0 {
			c.checkPort(at.Child("hostPort"), port.HostPort)
		}
		if port.HostIP != "" {
			c.add(validation.IsValidIPForLegacyField(at.Child("hostIP"), port.HostIP, true, nil)...)
		}
		oneOf(c, at.Child("protocol"), port.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
	}
}

func (c *checker) checkPort(at *field.Path, port int32) {
	c.invalid(at, port, validation.IsValidPortNum(int(port))...)
}

// checkPortReference looks at the port of a probe or hook, which may be the name of a container port.
func (c *checker) checkPortReference(at *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.String {
		c.invalid(at, port.StrVal, validation.IsValidPortName(port.StrVal)...)
		return
	}
	c.checkPort(at, port.IntVal)
}

// checkHostPorts looks for ports of the host that two containers want. Init containers run one after the other, so each
// may use what the others use.
func (c *checker) checkHostPorts(spec *field.Path) {
	at := spec.Child("initContainers")
	for i := range c.spec.InitContainers {
		c.claimHostPorts(at.Index(i).Child("ports"), c.spec.InitContainers[i].Ports, make(map[string]bool))
	}
	at = spec.Child("containers")
	taken := make(map[string]bool)
	for i, container := range c.spec.Containers {
		c.claimHostPorts(at.Index(i).Child("ports"), container.Ports, taken)
		for j, port := range container.Ports {
			if c.spec.HostNetwork && port.HostPort != port.ContainerPort {
				c.invalid(at.Index(i).Child("ports").Index(j).Child("hostPort"), port.HostPort,
					"must be the same as containerPort when hostNetwork is true")
			}
		}
	}
}

func (c *checker) claimHostPorts(at *field.Path, ports []v1.ContainerPort, taken map[string]bool) {
	for i, port := range ports {
		if port.HostPort != 0 {
			claim := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
			unique(c, at.Index(i).Child("hostPort"), taken, claim)
		}
	}
}
