package expression

import (
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// UnknownFact is the value of a fact that is not known.
const UnknownFact = "unknown"

// Facts returns all fields of the variables as Go values (string, bool, int64, float64, maps and slices of them), for templates. Those that
// are not known are UnknownFact. The pod has also its labels and annotations. Variables without an object are absent.
func Facts(in RuleInput) map[string]any {
	e := &evaluation{}
	e.set(in)
	facts := map[string]any{}
	if e.pod.view != nil {
		pod := values(podFields, &e.pod)
		delete(pod, "ok")
		delete(pod, "why")
		delete(pod, "trouble")
		pod["labels"], pod["annotations"] = e.pod.view.Metadata.Labels, e.pod.view.Metadata.Annotations
		facts["pod"] = pod
	}
	if e.container.spec != nil {
		facts["container"] = values(containerFields, &e.container)
	}
	if e.node.view != nil {
		facts["node"] = values(nodeFields, &e.node)
	}
	return facts
}

func values[T target](fields []field[T], object T) map[string]any {
	all := make(map[string]any, len(fields))
	for i := range fields {
		all[fields[i].Name] = native(fields[i].get(object))
	}
	return all
}

// native returns a value of the environment as a Go value.
func native(value ref.Val) any {
	switch v := value.(type) {
	case *types.Unknown:
		return UnknownFact
	case *object:
		switch o := v.value.(type) {
		case *usage:
			return values(usageFields, o)
		case *nodeLoad:
			return values(nodeLoadFields, o)
		case *container:
			return values(containerFields, o)
		}
	}
	if list, isList := value.Value().([]ref.Val); isList {
		all := make([]any, len(list))
		for i := range list {
			all[i] = native(list[i])
		}
		return all
	}
	return value.Value()
}
