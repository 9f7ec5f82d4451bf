package resolve

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Variables is an ordered set of environment variables. A variable that is set again keeps its place and gets the new value.
// The zero value is ready to use.
type Variables struct {
	names  []string
	values map[string]string
}

// Set sets a variable.
func (v *Variables) Set(name, value string) {
	if v.values == nil {
		v.values = map[string]string{}
	}
	if _, found := v.values[name]; !found {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

// Get returns the value of a variable.
func (v *Variables) Get(name string) (string, bool) {
	value, found := v.values[name]
	return value, found
}

// List returns all variables in the order in which they were first set.
func (v *Variables) List() []v1.EnvVar {
	list := make([]v1.EnvVar, 0, len(v.names))
	for _, name := range v.names {
		list = append(list, v1.EnvVar{Name: name, Value: v.values[name]})
	}
	return list
}

// Expand replaces $(NAME) by the variable's value, and $$ by $. References to unknown variables are kept.
func Expand(text string, lookup func(name string) (string, bool)) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		if rest, isEscaped := strings.CutPrefix(after, "$"); isEscaped {
			out.WriteByte('$')
			text = rest
			continue
		}
		name, rest, isClosed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		if !isClosed || !strings.HasPrefix(after, "(") {
			out.WriteByte('$')
			text = after
			continue
		}
		if value, ok := lookup(name); ok {
			out.WriteString(value)
		} else {
			out.WriteString("$(" + name + ")")
		}
		text = rest
	}
}

// apiServerService is the service of the API server. Containers always get its variables, even if the pod's
// enableServiceLinks is false.
const apiServerService = "kubernetes"

// LinkedServices returns the services whose variables a container gets: those of the pod's namespace that have a cluster IP,
// and the API server's of the namespace default, unless an own service has the same name.
func LinkedServices(own, inDefault []v1.Service) []v1.Service {
	linked := slices.DeleteFunc(slices.Clone(own), func(s v1.Service) bool { return !hasClusterIP(&s) })
	hasAPIServer := slices.ContainsFunc(linked, func(s v1.Service) bool { return s.Name == apiServerService })
	for i := range inDefault {
		if !hasAPIServer && inDefault[i].Name == apiServerService && hasClusterIP(&inDefault[i]) {
			linked = append(linked, inDefault[i])
		}
	}
	return linked
}

func hasClusterIP(service *v1.Service) bool {
	return service.Spec.ClusterIP != "" && service.Spec.ClusterIP != v1.ClusterIPNone
}

// ServiceVariables returns the variables of services in the format of Docker links, ordered by service name.
func ServiceVariables(services []v1.Service) []v1.EnvVar {
	services = slices.Clone(services)
	slices.SortFunc(services, func(a, b v1.Service) int { return cmp.Compare(a.Name, b.Name) })
	var variables []v1.EnvVar
	for i := range services {
		if len(services[i].Spec.Ports) > 0 {
			variables = append(variables, serviceVariables(&services[i])...)
		}
	}
	return variables
}

func serviceVariables(service *v1.Service) []v1.EnvVar {
	prefix, ports := variableName(service.Name), service.Spec.Ports
	variables := []v1.EnvVar{
		{Name: prefix + "_SERVICE_HOST", Value: service.Spec.ClusterIP},
		{Name: prefix + "_SERVICE_PORT", Value: portNumber(ports[0])},
	}
	for _, port := range ports {
		if port.Name != "" {
			variables = append(variables, v1.EnvVar{Name: prefix + "_SERVICE_PORT_" + variableName(port.Name), Value: portNumber(port)})
		}
	}
	variables = append(variables, v1.EnvVar{Name: prefix + "_PORT", Value: portURL(service.Spec.ClusterIP, ports[0])})
	for _, port := range ports {
		name := prefix + "_PORT_" + portNumber(port) + "_" + strings.ToUpper(protocol(port))
		variables = append(variables,
			v1.EnvVar{Name: name, Value: portURL(service.Spec.ClusterIP, port)},
			v1.EnvVar{Name: name + "_PROTO", Value: protocol(port)},
			v1.EnvVar{Name: name + "_PORT", Value: portNumber(port)},
			v1.EnvVar{Name: name + "_ADDR", Value: service.Spec.ClusterIP})
	}
	return variables
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
