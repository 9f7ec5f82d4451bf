package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) checkMounts(container *field.Path, spec *v1.Container) {
	if len(spec.VolumeDevices) > 0 {
		c.forbidden(container.Child("volumeDevices"), "need a persistent volume claim, which a static pod cannot have")
	}
	paths := make(map[string]bool)
	for i, mount := range spec.VolumeMounts {
		at := container.Child("volumeMounts").Index(i)
		switch _, exists := c.volumes[mount.Name]; {
		case mount.Name == "":
			c.required(at.Child("name"), "")
		case !exists:
			c.add(field.NotFound(at.Child("name"), mount.Name))
		}
		if mount.MountPath == "" {
			c.required(at.Child("mountPath"), "")
		} else {
			unique(c, at.Child("mountPath"), paths, mount.MountPath)
		}
		c.descending(at.Child("subPath"), mount.SubPath)
		c.descending(at.Child("subPathExpr"), mount.SubPathExpr)
		if mount.SubPath != "" && mount.SubPathExpr != "" {
			c.forbidden(at.Child("subPathExpr"), "may not be set together with subPath")
		}
		c.checkPropagation(at, mount, spec.SecurityContext)
	}
}

func (c *checker) checkPropagation(at *field.Path, mount v1.VolumeMount, context *v1.SecurityContext) {
	oneOfIfSet(c, at.Child("mountPropagation"), mount.MountPropagation,
		v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional)
	privileged := context != nil && context.Privileged != nil && *context.Privileged
	propagates := mount.MountPropagation != nil && *mount.MountPropagation != v1.MountPropagationNone
	if propagates && *mount.MountPropagation == v1.MountPropagationBidirectional && !privileged {
		c.forbidden(at.Child("mountPropagation"), "Bidirectional is for privileged containers only")
	}
	if mount.RecursiveReadOnly == nil {
		return
	}
	recursive := at.Child("recursiveReadOnly")
	oneOf(c, recursive, *mount.RecursiveReadOnly,
		v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled)
	if *mount.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return
	}
	if !mount.ReadOnly {
		c.forbidden(recursive, "needs readOnly: true")
	}
	if propagates {
		c.forbidden(recursive, "may not be set together with mountPropagation")
	}
}
