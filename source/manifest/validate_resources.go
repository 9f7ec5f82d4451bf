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

// checkResources looks at requests and limits. isKnown says why a name cannot be asked for here.
func (c *checker) checkResources(at *field.Path, r *v1.ResourceRequirements, isKnown func(v1.ResourceName) []string) {
	limits, requests := at.Child("limits"), at.Child("requests")
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		c.invalid(limits.Key(string(name)), name, isKnown(name)...)
		c.checkQuantity(limits.Key(string(name)), name, r.Limits[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		at, request := requests.Key(string(name)), r.Requests[name]
		limit, limited := r.Limits[name]
		if limited && request.Cmp(limit) == 0 {
			continue // as it is by default; whatever is wrong with it is wrong with the limit
		}
		c.invalid(at, name, isKnown(name)...)
		c.checkQuantity(at, name, request)
		switch {
		case limited && mayOvercommit(name) && request.Cmp(limit) > 0:
			c.invalid(at, request.String(), fmt.Sprintf("must not be more than the limit of %s", limit.String()))
		case limited && !mayOvercommit(name):
			c.invalid(at, request.String(), fmt.Sprintf("must be the same as the limit of %s", limit.String()))
		case !limited && !mayOvercommit(name):
			c.required(limits.Key(string(name)), "the same as the request")
		}
	}
	if needsCPUOrMemory(r) {
		c.forbidden(at, "huge pages need a request or limit of cpu or memory beside them")
	}
}

func needsCPUOrMemory(r *v1.ResourceRequirements) bool {
	huge, plain := false, false
	for _, list := range []v1.ResourceList{r.Limits, r.Requests} {
		for name := range list {
			huge = huge || isHugePages(name)
			plain = plain || name == v1.ResourceCPU || name == v1.ResourceMemory
		}
	}
	return huge && !plain
}

func (c *checker) checkQuantity(at *field.Path, name v1.ResourceName, quantity resource.Quantity) {
	if quantity.Sign() < 0 {
		c.invalid(at, quantity.String(), "must not be negative")
	}
	if !isNative(name) && quantity.MilliValue()%1000 != 0 {
		c.invalid(at, quantity.String(), "must be a whole number")
	}
	if isHugePages(name) && !isWholePages(name, quantity) {
		c.invalid(at, quantity.String(), fmt.Sprintf("must be a whole number of pages of %s", name))
	}
}

func isWholePages(name v1.ResourceName, quantity resource.Quantity) bool {
	size := strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !reasonableQuantity.MatchString(size) {
		return false
	}
	page, err := resource.ParseQuantity(size)
	return err == nil && page.Sign() > 0 && page.MilliValue()%1000 == 0 && quantity.Value()%page.Value() == 0
}

// isContainerResource says why a container cannot ask for the resource.
func isContainerResource(name v1.ResourceName) []string {
	reasons := validation.IsQualifiedName(string(name))
	switch standard := !strings.Contains(string(name), "/"); {
	case len(reasons) > 0, standard && isHugePages(name), !standard && isNative(name):
	case standard && slices.Contains([]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}, name):
	case standard:
		reasons = append(reasons, "must be cpu, memory, ephemeral-storage, hugepages-<size> or <domain>/<name>")
	case strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix):
		reasons = append(reasons, "must not start with "+v1.DefaultResourceRequestsPrefix)
	default: // a quota counts it under a longer name, which must be a sound one too
		reasons = validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix + string(name))
	}
	return reasons
}

func isPodResource(name v1.ResourceName) []string {
	if reasons := validation.IsQualifiedName(string(name)); len(reasons) > 0 {
		return reasons
	}
	if !isPodLevel(name) {
		return []string{"a pod as a whole can have cpu, memory and hugepages-<size> only"}
	}
	return nil
}

// checkPodResources looks at what the pod has as a whole, and that its containers fit into it.
func (c *checker) checkPodResources(spec *field.Path) {
	c.checkOverhead(spec.Child("overhead"))
	pod, at := c.spec.Resources, spec.Child("resources")
	if pod == nil {
		return
	}
	c.checkResources(at, pod, isPodResource)
	needed := requestsOf(c.spec)
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		if request, set := pod.Requests[name]; set && request.Cmp(needed[name]) < 0 {
			c.invalid(at.Child("requests").Key(string(name)), request.String(), tooSmall(needed[name], "request"))
		}
	}
	limited := limitsOf(c.spec)
	for _, name := range slices.Sorted(maps.Keys(limited)) {
		if limit, set := pod.Limits[name]; set && isHugePages(name) && limit.Cmp(limited[name]) < 0 {
			c.invalid(at.Child("limits").Key(string(name)), limit.String(), tooSmall(limited[name], "are limited to"))
		}
	}
	for i, container := range c.spec.Containers {
		for _, name := range slices.Sorted(maps.Keys(container.Resources.Limits)) {
			own, whole := container.Resources.Limits[name], pod.Limits[name]
			if _, set := pod.Limits[name]; set && own.Cmp(whole) > 0 {
				c.invalid(spec.Child("containers").Index(i).Child("resources", "limits").Key(string(name)), own.String(),
					fmt.Sprintf("must not be more than the pod's limit of %s", whole.String()))
			}
		}
	}
}

// checkOverhead looks at what the sandbox takes beside the containers.
func (c *checker) checkOverhead(at *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(c.spec.Overhead)) {
		c.invalid(at.Key(string(name)), name, isContainerResource(name)...)
		c.checkQuantity(at.Key(string(name)), name, c.spec.Overhead[name])
	}
	if needsCPUOrMemory(&v1.ResourceRequirements{Limits: c.spec.Overhead}) {
		c.forbidden(at, "huge pages need cpu or memory beside them")
	}
}

func tooSmall(needed resource.Quantity, what string) string {
	return fmt.Sprintf("must not be less than the %s that the containers %s together", needed.String(), what)
}
