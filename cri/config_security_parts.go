package cri

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func int64Value(value *int64) *runtimeapi.Int64Value {
	if value == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *value}
}

// groups are those that every process of the pod has beside its own; the group of the volumes' files is one.
func groups(asked *v1.PodSecurityContext) []int64 {
	var all []int64
	if asked.FSGroup != nil {
		all = append(all, *asked.FSGroup)
	}
	return append(all, asked.SupplementalGroups...)
}

func groupsPolicy(asked *v1.PodSecurityContext) (runtimeapi.SupplementalGroupsPolicy, error) {
	if asked.SupplementalGroupsPolicy == nil {
		return runtimeapi.SupplementalGroupsPolicy_Merge, nil
	}
	policy, known := runtimeapi.SupplementalGroupsPolicy_value[string(*asked.SupplementalGroupsPolicy)]
	if !known {
		return 0, fmt.Errorf("spec.securityContext.supplementalGroupsPolicy: %q is neither Merge nor Strict",
			*asked.SupplementalGroupsPolicy)
	}
	return runtimeapi.SupplementalGroupsPolicy(policy), nil
}

func selinux(asked *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if asked == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: asked.User, Role: asked.Role, Type: asked.Type, Level: asked.Level}
}

func capabilities(asked *v1.Capabilities) *runtimeapi.Capability {
	if asked == nil {
		return nil
	}
	return &runtimeapi.Capability{AddCapabilities: written(asked.Add), DropCapabilities: written(asked.Drop)}
}

func written(list []v1.Capability) []string {
	var names []string
	for _, capability := range list {
		names = append(names, string(capability))
	}
	return names
}

// appArmor gives the profile in today's form and in the one that containerd 1.6 reads.
func appArmor(asked *v1.AppArmorProfile) (*runtimeapi.SecurityProfile, string, error) {
	if asked == nil {
		return nil, "", nil
	}
	switch asked.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			v1.DeprecatedAppArmorBetaProfileRuntimeDefault, nil
	case v1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
			v1.DeprecatedAppArmorBetaProfileNameUnconfined, nil
	case v1.AppArmorProfileTypeLocalhost:
		if asked.LocalhostProfile == nil || *asked.LocalhostProfile == "" {
			return nil, "", errors.New("securityContext.appArmorProfile.localhostProfile: required with type Localhost")
		}
		return &runtimeapi.SecurityProfile{
			ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *asked.LocalhostProfile,
		}, v1.DeprecatedAppArmorBetaProfileNamePrefix + *asked.LocalhostProfile, nil
	default:
		return nil, "", fmt.Errorf("securityContext.appArmorProfile.type: %q is not known", asked.Type)
	}
}

// annotatedAppArmor reads the annotation that preceded the field; static pods may still carry it.
func annotatedAppArmor(pod *v1.Pod, container string) *v1.AppArmorProfile {
	value := pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+container]
	switch value {
	case "":
		return nil
	case v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	default:
		name := strings.TrimPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix)
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
}
