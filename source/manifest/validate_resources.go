package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateResources validates requests and limits. validateName returns the reasons against a resource name.
func (v *validator) validateResources(at *field.Path, r *v1.ResourceRequirements, validateName func(v1.ResourceName) []string) {
	limits, requests := at.Child("limits"), at.Child("requests")
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		v.invalid(limits.Key(string(name)), name, validateName(name)...)
		v.validateQuantity(limits.Key(string(name)), name, r.Limits[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		at, request := requests.Key(string(name)), r.Requests[name]
		limit, limited := r.Limits[name]
		if limited && request.Cmp(limit) == 0 {
			continue // the default; its errors are those of the limit
		}
		v.invalid(at, name, validateName(name)...)
		v.validateQuantity(at, name, request)
		switch {
		case limited && isOvercommitAllowed(name) && request.Cmp(limit) > 0:
			v.invalid(at, request.String(), fmt.Sprintf("must not exceed the limit of %s", limit.String()))
		case limited && !isOvercommitAllowed(name):
			v.invalid(at, request.String(), fmt.Sprintf("must equal the limit of %s", limit.String()))
		case !limited && !isOvercommitAllowed(name):
			v.required(limits.Key(string(name)), "must equal the request")
		}
	}
	if lacksCPUOrMemory(r) {
		v.forbidden(at, "huge pages require a request or limit of cpu or memory")
	}
}

func lacksCPUOrMemory(r *v1.ResourceRequirements) bool {
	huge, plain := false, false
	for _, list := range []v1.ResourceList{r.Limits, r.Requests} {
		for name := range list {
			huge = huge || isHugePages(name)
			plain = plain || name == v1.ResourceCPU || name == v1.ResourceMemory
		}
	}
	return huge && !plain
}

func (v *validator) validateQuantity(at *field.Path, name v1.ResourceName, quantity resource.Quantity) {
	if quantity.Sign() < 0 {
		v.invalid(at, quantity.String(), "must not be negative")
	}
	if !isNative(name) && quantity.MilliValue()%1000 != 0 {
		v.invalid(at, quantity.String(), "must be a whole number")
	}
	if isHugePages(name) && !isWholePages(name, quantity) {
		v.invalid(at, quantity.String(), fmt.Sprintf("must be a whole number of pages of %s", name))
	}
}

func isWholePages(name v1.ResourceName, quantity resource.Quantity) bool {
	size := strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !cheapQuantity.MatchString(size) {
		return false
	}
	page, err := resource.ParseQuantity(size)
	return err == nil && page.Sign() > 0 && page.MilliValue()%1000 == 0 && quantity.Value()%page.Value() == 0
}

// validateContainerResource returns the reasons why a container cannot request the resource.
func validateContainerResource(name v1.ResourceName) []string {
	reasons := validation.IsQualifiedName(string(name))
	switch standard := !strings.Contains(string(name), "/"); {
	case len(reasons) > 0, standard && isHugePages(name), !standard && isNative(name):
	case standard && slices.Contains([]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}, name):
	case standard:
		reasons = append(reasons, "must be cpu, memory, ephemeral-storage, hugepages-<size> or <domain>/<name>")
	case strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix):
		reasons = append(reasons, "must not start with "+v1.DefaultResourceRequestsPrefix)
	default: // a quota uses the prefixed name, which must be valid too
		reasons = validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix + string(name))
	}
	return reasons
}

// validatePodResource returns the reasons why a pod cannot request the resource at pod level.
func validatePodResource(name v1.ResourceName) []string {
	if reasons := validation.IsQualifiedName(string(name)); len(reasons) > 0 {
		return reasons
	}
	if !isPodLevelResource(name) {
		return []string{"must be cpu, memory or hugepages-<size> at pod level"}
	}
	return nil
}

// validatePodResources validates overhead and pod-level resources, which must cover those of the containers.
func (v *validator) validatePodResources(spec *field.Path) {
	v.validateOverhead(spec.Child("overhead"))
	pod, at := v.spec.Resources, spec.Child("resources")
	if pod == nil {
		return
	}
	v.validateResources(at, pod, validatePodResource)
	needed := containerRequests(v.spec)
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		if request, set := pod.Requests[name]; set && request.Cmp(needed[name]) < 0 {
			v.invalid(at.Child("requests").Key(string(name)), request.String(), tooSmall(needed[name], "requests"))
		}
	}
	limited := containerLimits(v.spec)
	for _, name := range slices.Sorted(maps.Keys(limited)) {
		if limit, set := pod.Limits[name]; set && isHugePages(name) && limit.Cmp(limited[name]) < 0 {
			v.invalid(at.Child("limits").Key(string(name)), limit.String(), tooSmall(limited[name], "limits"))
		}
	}
	for i, container := range v.spec.Containers {
		for _, name := range slices.Sorted(maps.Keys(container.Resources.Limits)) {
			own, whole := container.Resources.Limits[name], pod.Limits[name]
			if _, set := pod.Limits[name]; set && own.Cmp(whole) > 0 {
				v.invalid(spec.Child("containers").Index(i).Child("resources", "limits").Key(string(name)), own.String(),
					fmt.Sprintf("must not exceed the pod's limit of %s", whole.String()))
			}
		}
	}
}

// validateOverhead validates the resources of the sandbox itself.
func (v *validator) validateOverhead(at *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(v.spec.Overhead)) {
		v.invalid(at.Key(string(name)), name, validateContainerResource(name)...)
		v.validateQuantity(at.Key(string(name)), name, v.spec.Overhead[name])
	}
	if lacksCPUOrMemory(&v1.ResourceRequirements{Limits: v.spec.Overhead}) {
		v.forbidden(at, "huge pages require cpu or memory")
	}
}

func tooSmall(needed resource.Quantity, what string) string {
	return fmt.Sprintf("must not be less than the sum of the containers' %s, %s", what, needed.String())
}
