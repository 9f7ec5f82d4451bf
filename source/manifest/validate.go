package manifest

import (
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate finds what the API server would refuse in a defaulted static pod (CFG-9), so that nothing unvalidated runs and
// the pod's mirror can be created. base is where the pod stands in its document. References to API objects are not looked
// at in detail: findReferences refuses them as such.
func validate(pod *v1.Pod, base *field.Path) field.ErrorList {
	c := &checker{pod: pod, spec: &pod.Spec, volumes: make(map[string]*v1.Volume)}
	for i := range pod.Spec.Volumes {
		c.volumes[pod.Spec.Volumes[i].Name] = &pod.Spec.Volumes[i]
	}
	spec := base.Child("spec")
	c.checkMetadata(base.Child("metadata"))
	c.checkVolumes(spec.Child("volumes"))
	c.checkContainers(spec)
	c.checkPodResources(spec)
	c.checkPodSecurity(spec)
	c.checkNetwork(spec)
	c.checkScheduling(spec)
	c.checkLifetime(spec)
	return c.wrong
}

// checker collects what is wrong with one pod.
type checker struct {
	pod     *v1.Pod
	spec    *v1.PodSpec
	volumes map[string]*v1.Volume // by name
	wrong   field.ErrorList
}

func (c *checker) add(errs ...*field.Error) { c.wrong = append(c.wrong, errs...) }

func (c *checker) required(at *field.Path, why string) { c.add(field.Required(at, why)) }

func (c *checker) forbidden(at *field.Path, why string) { c.add(field.Forbidden(at, why)) }

// invalid adds one error for each reason; none when there is none.
func (c *checker) invalid(at *field.Path, value any, reasons ...string) {
	for _, why := range reasons {
		c.add(field.Invalid(at, value, why))
	}
}

// present requires a value.
func (c *checker) present(at *field.Path, value string) {
	if value == "" {
		c.required(at, "")
	}
}

// named requires a value and that it passes the check.
func (c *checker) named(at *field.Path, name string, check func(string) []string) {
	c.present(at, name)
	if name != "" {
		c.invalid(at, name, check(name)...)
	}
}

// unique reports the value if it was seen before, and remembers it.
func unique[T comparable](c *checker, at *field.Path, seen map[T]bool, value T) {
	if seen[value] {
		c.add(field.Duplicate(at, value))
	}
	seen[value] = true
}

// oneOf requires a value, and that it is one of those allowed.
func oneOf[T ~string](c *checker, at *field.Path, value T, allowed ...T) {
	switch {
	case slices.Contains(allowed, value):
	case value == "":
		c.required(at, "")
	default:
		c.add(field.NotSupported(at, value, allowed))
	}
}

// oneOfIfSet is oneOf for a value that may be left out.
func oneOfIfSet[T ~string](c *checker, at *field.Path, value *T, allowed ...T) {
	if value != nil {
		oneOf(c, at, *value, allowed...)
	}
}

// atLeast requires the number to reach the minimum.
func (c *checker) atLeast(at *field.Path, value, minimum int64) {
	if value < minimum {
		c.invalid(at, value, fmt.Sprintf("must be at least %d", minimum))
	}
}

// descending requires a path that stays below where it starts.
func (c *checker) descending(at *field.Path, value string) {
	if path.IsAbs(value) {
		c.invalid(at, value, "must be a relative path")
	}
	c.noBacksteps(at, value)
}

func (c *checker) noBacksteps(at *field.Path, value string) {
	if slices.Contains(strings.Split(value, "/"), "..") {
		c.invalid(at, value, "must not contain '..'")
	}
}

// mode requires the permission bits of a file.
func (c *checker) mode(at *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.invalid(at, *mode, "must be between 0000 and 0777 octal (0 and 511 decimal)")
	}
}
