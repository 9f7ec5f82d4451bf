package manifest

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The fields of a pod that its containers may be told.
var (
	envFields = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
	volumeFields = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
	}
	resourceFields = []string{
		"limits.cpu", "limits.memory", "limits.ephemeral-storage",
		"requests.cpu", "requests.memory", "requests.ephemeral-storage",
	}
)

// checkEnv looks at variables. Those that come from API objects are findReferences' to refuse.
func (c *checker) checkEnv(container *field.Path, spec *v1.Container) {
	for i, variable := range spec.Env {
		at := container.Child("env").Index(i)
		c.named(at.Child("name"), variable.Name, validation.IsRelaxedEnvVarName)
		if variable.ValueFrom != nil {
			c.checkValueFrom(at.Child("valueFrom"), variable)
		}
	}
	for i, source := range spec.EnvFrom {
		at := container.Child("envFrom").Index(i)
		if source.Prefix != "" {
			c.invalid(at.Child("prefix"), source.Prefix, validation.IsRelaxedEnvVarName(source.Prefix)...)
		}
		if source.ConfigMapRef == nil && source.SecretRef == nil {
			c.required(at, "a source")
		}
	}
}

func (c *checker) checkValueFrom(at *field.Path, variable v1.EnvVar) {
	from := variable.ValueFrom
	sources := 0
	for _, set := range []bool{
		from.FieldRef != nil, from.ResourceFieldRef != nil, from.FileKeyRef != nil,
		from.ConfigMapKeyRef != nil, from.SecretKeyRef != nil,
	} {
		if set {
			sources++
		}
	}
	switch {
	case sources == 0:
		c.required(at, "one of fieldRef, resourceFieldRef and fileKeyRef")
	case sources > 1:
		c.forbidden(at, "a variable has one source only")
	case variable.Value != "":
		c.forbidden(at, "may not be set together with value")
	}
	if from.FieldRef != nil {
		c.checkFieldRef(at.Child("fieldRef"), from.FieldRef, envFields)
	}
	if from.ResourceFieldRef != nil {
		c.checkResourceFieldRef(at.Child("resourceFieldRef"), from.ResourceFieldRef)
	}
	if from.FileKeyRef != nil {
		c.checkFileKeyRef(at.Child("fileKeyRef"), from.FileKeyRef)
	}
}

// checkFieldRef looks at the path of a pod's field: one of those allowed, or a single label or annotation.
func (c *checker) checkFieldRef(at *field.Path, ref *v1.ObjectFieldSelector, allowed []string) {
	oneOf(c, at.Child("apiVersion"), ref.APIVersion, "v1")
	path := ref.FieldPath
	if path == "spec.host" { // an old name of the same
		path = "spec.nodeName"
	}
	if whole, found := strings.CutSuffix(path, "']"); found {
		if parent, key, found := strings.Cut(whole, "['"); found && parent != "" {
			c.checkSubscript(at.Child("fieldPath"), parent, key)
			return
		}
	}
	if !slices.Contains(allowed, path) {
		oneOf(c, at.Child("fieldPath"), ref.FieldPath, allowed...)
	}
}

func (c *checker) checkSubscript(at *field.Path, parent, key string) {
	switch parent {
	case "metadata.labels":
		c.invalid(at, key, validation.IsQualifiedName(key)...)
	case "metadata.annotations":
		c.invalid(at, key, validation.IsQualifiedName(strings.ToLower(key))...)
	default:
		c.invalid(at, parent, "only metadata.labels and metadata.annotations can have a subscript")
	}
}

func (c *checker) checkResourceFieldRef(at *field.Path, ref *v1.ResourceFieldSelector) {
	isHuge := strings.HasPrefix(ref.Resource, "limits.hugepages-") || strings.HasPrefix(ref.Resource, "requests.hugepages-")
	if !isHuge {
		oneOf(c, at.Child("resource"), ref.Resource, resourceFields...)
	}
	if ref.Divisor.IsZero() {
		return
	}
	units := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	if strings.HasSuffix(ref.Resource, ".cpu") {
		units = []string{"1m", "1"}
	}
	oneOf(c, at.Child("divisor"), ref.Divisor.String(), units...)
}

// checkFileKeyRef looks at a variable that an init container wrote into a file of an emptyDir volume.
func (c *checker) checkFileKeyRef(at *field.Path, ref *v1.FileKeySelector) {
	c.named(at.Child("key"), ref.Key, validation.IsRelaxedEnvVarName)
	c.present(at.Child("path"), ref.Path)
	c.noBacksteps(at.Child("path"), ref.Path)
	name := at.Child("volumeName")
	switch volume, exists := c.volumes[ref.VolumeName]; {
	case ref.VolumeName == "":
		c.required(name, "")
	case !exists:
		c.add(field.NotFound(name, ref.VolumeName))
	case volume.EmptyDir == nil:
		c.invalid(name, ref.VolumeName, "must be an emptyDir volume")
	}
}
