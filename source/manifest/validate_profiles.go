package manifest

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const localhostPrefix = v1.SeccompLocalhostProfileNamePrefix // AppArmor's annotations use the same

// checkSeccomp looks at a profile, and that the old annotation, if it is there, says the same.
func (c *checker) checkSeccomp(at *field.Path, profile *v1.SeccompProfile, annotation string) {
	if profile == nil {
		return
	}
	oneOf(c, at.Child("type"), profile.Type,
		v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeUnconfined)
	local := at.Child("localhostProfile")
	switch isLocal := profile.Type == v1.SeccompProfileTypeLocalhost; {
	case isLocal && profile.LocalhostProfile == nil:
		c.required(local, "")
	case isLocal:
		c.descending(local, *profile.LocalhostProfile)
	case profile.LocalhostProfile != nil:
		c.invalid(local, *profile.LocalhostProfile, "may be set for type Localhost only")
	}
	value, annotated := c.pod.Annotations[annotation]
	if !annotated {
		return
	}
	same := true
	switch profile.Type {
	case v1.SeccompProfileTypeUnconfined:
		same = value == v1.SeccompProfileNameUnconfined
	case v1.SeccompProfileTypeRuntimeDefault:
		same = value == v1.SeccompProfileRuntimeDefault || value == v1.DeprecatedSeccompProfileDockerDefault
	case v1.SeccompProfileTypeLocalhost:
		same = profile.LocalhostProfile != nil && value == localhostPrefix+*profile.LocalhostProfile
	}
	if !same {
		c.forbidden(at.Child("type"), "must say the same as the annotation "+annotation)
	}
}

func (c *checker) checkSeccompAnnotation(at *field.Path, value string) {
	switch {
	case value == v1.SeccompProfileRuntimeDefault, value == v1.DeprecatedSeccompProfileDockerDefault:
	case value == v1.SeccompProfileNameUnconfined:
	case strings.HasPrefix(value, localhostPrefix):
		c.descending(at, strings.TrimPrefix(value, localhostPrefix))
	default:
		c.invalid(at, value, "must be runtime/default, unconfined or localhost/<profile>")
	}
}

func (c *checker) checkAppArmor(at *field.Path, profile *v1.AppArmorProfile) {
	if profile == nil {
		return
	}
	oneOf(c, at.Child("type"), profile.Type,
		v1.AppArmorProfileTypeLocalhost, v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeUnconfined)
	local := at.Child("localhostProfile")
	switch isLocal := profile.Type == v1.AppArmorProfileTypeLocalhost; {
	case isLocal && (profile.LocalhostProfile == nil || *profile.LocalhostProfile == ""):
		c.required(local, "")
	case isLocal && strings.TrimSpace(*profile.LocalhostProfile) != *profile.LocalhostProfile:
		c.invalid(local, *profile.LocalhostProfile, "must not begin or end with blanks")
	case isLocal && len(*profile.LocalhostProfile) > maxProfileLength:
		c.add(field.TooLong(local, "", maxProfileLength))
	case !isLocal && profile.LocalhostProfile != nil:
		c.invalid(local, *profile.LocalhostProfile, "may be set for type Localhost only")
	}
}

func (c *checker) checkAppArmorAnnotation(at *field.Path, container, value string) {
	if !c.hasContainer(container) {
		c.invalid(at, container, "there is no container of this name")
	}
	switch {
	case value == "", value == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
	case value == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
	case strings.HasPrefix(value, localhostPrefix):
	default:
		c.invalid(at, value, "must be runtime/default, unconfined or localhost/<profile>")
	}
}

// checkAppArmorMatch requires that a container's profile, its own or the pod's, says what the old annotation says.
func (c *checker) checkAppArmorMatch(at *field.Path, container *v1.Container) {
	profile := c.spec.SecurityContext.AppArmorProfile
	if own := container.SecurityContext; own != nil && own.AppArmorProfile != nil {
		profile = own.AppArmorProfile
	}
	key := v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + container.Name
	value, annotated := c.pod.Annotations[key]
	if profile == nil || !annotated {
		return
	}
	same := true
	switch profile.Type {
	case v1.AppArmorProfileTypeUnconfined:
		same = value == v1.DeprecatedAppArmorBetaProfileNameUnconfined
	case v1.AppArmorProfileTypeRuntimeDefault:
		same = value == v1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case v1.AppArmorProfileTypeLocalhost:
		same = profile.LocalhostProfile != nil && value == localhostPrefix+*profile.LocalhostProfile
	}
	if !same {
		c.forbidden(at.Child("type"), "must say the same as the annotation "+key)
	}
}

func (c *checker) hasContainer(name string) bool {
	found := false
	c.eachContainer(nil, func(container *v1.Container, _ *field.Path) { found = found || container.Name == name })
	return found
}
