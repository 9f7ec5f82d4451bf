package resolve

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// apiServerService is the service that every container is told of, whatever the pod's enableServiceLinks says.
const apiServerService = "kubernetes"

// LinkedServices chooses the services that a container is told of: those of the pod's own namespace as far as they have an
// address, and from the namespace default that of the API server, unless an own one has its name.
func LinkedServices(own, inDefault []v1.Service) []v1.Service {
	linked := slices.DeleteFunc(slices.Clone(own), func(s v1.Service) bool { return !hasClusterIP(&s) })
	known := slices.ContainsFunc(linked, func(s v1.Service) bool { return s.Name == apiServerService })
	for i := range inDefault {
		if !known && inDefault[i].Name == apiServerService && hasClusterIP(&inDefault[i]) {
			linked = append(linked, inDefault[i])
		}
	}
	return linked
}

func hasClusterIP(service *v1.Service) bool {
	return service.Spec.ClusterIP != "" && service.Spec.ClusterIP != v1.ClusterIPNone
}

// ServiceVariables says where services are, in the form that Docker's links once had, ordered by the services' names.
func ServiceVariables(services []v1.Service) []v1.EnvVar {
	services = slices.Clone(services)
	slices.SortFunc(services, func(a, b v1.Service) int { return cmp.Compare(a.Name, b.Name) })
	var all []v1.EnvVar
	for i := range services {
		if len(services[i].Spec.Ports) > 0 {
			all = append(all, serviceVariables(&services[i])...)
		}
	}
	return all
}

func serviceVariables(service *v1.Service) []v1.EnvVar {
	prefix, ports := variableName(service.Name), service.Spec.Ports
	all := []v1.EnvVar{
		{Name: prefix + "_SERVICE_HOST", Value: service.Spec.ClusterIP},
		{Name: prefix + "_SERVICE_PORT", Value: portNumber(ports[0])},
	}
	for _, port := range ports {
		if port.Name != "" {
			all = append(all, v1.EnvVar{Name: prefix + "_SERVICE_PORT_" + variableName(port.Name), Value: portNumber(port)})
		}
	}
	all = append(all, v1.EnvVar{Name: prefix + "_PORT", Value: portURL(service.Spec.ClusterIP, ports[0])})
	for _, port := range ports {
		name := prefix + "_PORT_" + portNumber(port) + "_" + strings.ToUpper(protocol(port))
		all = append(all,
			v1.EnvVar{Name: name, Value: portURL(service.Spec.ClusterIP, port)},
			v1.EnvVar{Name: name + "_PROTO", Value: protocol(port)},
			v1.EnvVar{Name: name + "_PORT", Value: portNumber(port)},
			v1.EnvVar{Name: name + "_ADDR", Value: service.Spec.ClusterIP})
	}
	return all
}

func variableName(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

func portNumber(port v1.ServicePort) string { return strconv.Itoa(int(port.Port)) }

func portURL(host string, port v1.ServicePort) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return protocol(port) + "://" + host + ":" + portNumber(port)
}

func protocol(port v1.ServicePort) string {
	return strings.ToLower(string(cmp.Or(port.Protocol, v1.ProtocolTCP)))
}
