package expression

import (
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/view"
)

// The types of the environment.
var (
	podType       = cel.ObjectType("Pod")
	containerType = cel.ObjectType("Container")
	nodeType      = cel.ObjectType("Node")
	usageType     = cel.ObjectType("Load")
	nodeLoadType  = cel.ObjectType("NodeLoad")
)

// functions returns the functions of the environment.
func functions() []cel.EnvOption {
	text := func(name string, get func(*view.PodView, string) string) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload("pod_"+name, []*cel.Type{podType, cel.StringType}, cel.StringType,
			cel.BinaryBinding(func(target, key ref.Val) ref.Val {
				p, isPod := target.Value().(*pod)
				k, isText := key.Value().(string)
				if !isPod || !isText {
					return types.MaybeNoSuchOverloadErr(target)
				}
				return types.String(cut(get(p.view, k)))
			})))
	}
	return []cel.EnvOption{
		text("label", func(v *view.PodView, key string) string { return v.Metadata.Labels[key] }),
		text("annotation", func(v *view.PodView, key string) string { return v.Metadata.Annotations[key] }),
		cel.Function("pressure", cel.MemberOverload("node_pressure", []*cel.Type{nodeType, cel.StringType}, cel.BoolType,
			cel.BinaryBinding(func(target, kind ref.Val) ref.Val {
				n, isNode := target.Value().(*node)
				k, isText := kind.Value().(string)
				if !isNode || !isText {
					return types.MaybeNoSuchOverloadErr(target)
				}
				return types.Bool(nodeCondition(n.view, v1.NodeConditionType(k+"Pressure")))
			}))),
		cel.Function("quantity", cel.Overload("quantity_string", []*cel.Type{cel.StringType}, cel.DoubleType, cel.UnaryBinding(parseQuantity))),
	}
}

// provider describes the types to the checker.
type provider struct {
	types.Provider // CEL's own
	fields         map[string]map[string]*types.FieldType
	names          map[string][]string
}

func newProvider(isRule bool) *provider {
	p := &provider{
		Provider: types.NewEmptyRegistry(), fields: map[string]map[string]*types.FieldType{}, names: map[string][]string{},
	}
	addType(p, podType, podFields, isRule)
	addType(p, containerType, containerFields, isRule)
	addType(p, nodeType, nodeFields, isRule)
	addType(p, usageType, usageFields, isRule)
	addType(p, nodeLoadType, nodeLoadFields, isRule)
	return p
}

func addType[T target](p *provider, objectType *cel.Type, fields []field[T], isRule bool) {
	name := objectType.TypeName()
	p.fields[name] = map[string]*types.FieldType{}
	for _, f := range fields {
		if isRule && isQueryOnly(name, f.Name) {
			continue
		}
		p.names[name] = append(p.names[name], f.Name)
		p.fields[name][f.Name] = &types.FieldType{
			Type: f.Type,
			IsSet: func(value any) bool {
				target, ok := value.(T)
				return !ok || f.get(target) != ref.Val(unknown)
			},
			GetFrom: func(value any) (any, error) {
				target, ok := value.(T)
				if !ok {
					return nil, fmt.Errorf("%T has no field %s", value, f.Name)
				}
				result := f.get(target)
				if result == ref.Val(unknown) && target.moment().missing == "" {
					target.moment().missing = variableOf[name] + "." + f.Name
				}
				return result, nil
			},
		}
	}
}

// variableOf has what the fields that can be unknown belong to.
var variableOf = map[string]string{usageType.TypeName(): "load", nodeLoadType.TypeName(): "node.load"}

// FindStructType implements types.Provider.
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if p.fields[name] != nil {
		return types.NewTypeTypeWithParam(cel.ObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	if names, found := p.names[name]; found {
		return names, true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (p *provider) FindStructFieldType(name, fieldName string) (*types.FieldType, bool) {
	if fields := p.fields[name]; fields != nil {
		fieldType, found := fields[fieldName]
		return fieldType, found
	}
	return p.Provider.FindStructFieldType(name, fieldName)
}

// adapter converts the Go values of the environment.
type adapter struct{}

// NativeToValue implements types.Adapter.
func (adapter) NativeToValue(value any) ref.Val {
	if v, isValue := value.(ref.Val); isValue {
		return v
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}
