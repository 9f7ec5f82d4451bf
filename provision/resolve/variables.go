package resolve

import v1 "k8s.io/api/core/v1"

// Variables are a container's, in the order in which their names first came up. A name has one value, the last one. The
// zero value is empty and ready for use.
type Variables struct {
	names  []string
	values map[string]string
}

// Set gives the variable its value.
func (v *Variables) Set(name, value string) {
	if v.values == nil {
		v.values = map[string]string{}
	}
	if _, known := v.values[name]; !known {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

// Get is the variable's value.
func (v *Variables) Get(name string) (string, bool) {
	value, known := v.values[name]
	return value, known
}

// List is all of them.
func (v *Variables) List() []v1.EnvVar {
	list := make([]v1.EnvVar, 0, len(v.names))
	for _, name := range v.names {
		list = append(list, v1.EnvVar{Name: name, Value: v.values[name]})
	}
	return list
}
