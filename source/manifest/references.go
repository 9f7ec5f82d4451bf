package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// findReferences refuses what a pod can have only from an API server: a static pod must start without one, and the API
// server refuses the mirror of a pod that names such an object (CFG-10). Its downward API is its own and allowed.
func findReferences(pod *v1.Pod, spec *field.Path) field.ErrorList {
	r := new(references)
	r.refuse(spec.Child("serviceAccountName"), "serviceaccounts", pod.Spec.ServiceAccountName != "")
	r.refuse(spec.Child("serviceAccount"), "serviceaccounts", pod.Spec.DeprecatedServiceAccount != "")
	r.refuse(spec.Child("resourceClaims"), "resourceclaims", len(pod.Spec.ResourceClaims) > 0)
	for i, secret := range pod.Spec.ImagePullSecrets {
		r.refuse(spec.Child("imagePullSecrets").Index(i), "secrets", secret.Name != "")
	}
	if pod.Spec.Resources != nil {
		r.refuse(spec.Child("resources", "claims"), "resourceclaims", pod.Spec.Resources.Claims != nil)
	}
	for i := range pod.Spec.InitContainers {
		r.ofContainer(spec.Child("initContainers").Index(i), &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		r.ofContainer(spec.Child("containers").Index(i), &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.Volumes {
		at := spec.Child("volumes").Index(i)
		r.ofVolume(at, &pod.Spec.Volumes[i].VolumeSource)
		r.ofDriver(at, &pod.Spec.Volumes[i].VolumeSource)
	}
	return r.found
}

type references struct{ found field.ErrorList }

func (r *references) refuse(at *field.Path, resource string, set bool) {
	if set {
		r.found = append(r.found, field.Forbidden(at, "static pods may not reference "+resource))
	}
}

func (r *references) ofContainer(at *field.Path, container *v1.Container) {
	r.refuse(at.Child("resources", "claims"), "resourceclaims", len(container.Resources.Claims) > 0)
	for i, source := range container.EnvFrom {
		at := at.Child("envFrom").Index(i)
		r.refuse(at.Child("configMapRef"), "configmaps", source.ConfigMapRef != nil)
		r.refuse(at.Child("secretRef"), "secrets", source.SecretRef != nil)
	}
	for i, variable := range container.Env {
		if from := variable.ValueFrom; from != nil {
			at := at.Child("env").Index(i).Child("valueFrom")
			r.refuse(at.Child("configMapKeyRef"), "configmaps", from.ConfigMapKeyRef != nil)
			r.refuse(at.Child("secretKeyRef"), "secrets", from.SecretKeyRef != nil)
		}
	}
}

func (r *references) ofVolume(at *field.Path, source *v1.VolumeSource) {
	r.refuse(at.Child("configMap"), "configmaps", source.ConfigMap != nil)
	r.refuse(at.Child("secret"), "secrets", source.Secret != nil)
	r.refuse(at.Child("persistentVolumeClaim"), "persistentvolumeclaims", source.PersistentVolumeClaim != nil)
	r.refuse(at.Child("ephemeral"), "persistentvolumeclaims", source.Ephemeral != nil)
	r.refuse(at.Child("csi"), "csidrivers", source.CSI != nil)
	r.refuse(at.Child("glusterfs"), "endpoints", source.Glusterfs != nil)
	r.refuse(at.Child("azureFile"), "secrets", source.AzureFile != nil)
	if source.Projected == nil {
		return
	}
	for i, projection := range source.Projected.Sources {
		at := at.Child("projected", "sources").Index(i)
		r.refuse(at.Child("configMap"), "configmaps", projection.ConfigMap != nil)
		r.refuse(at.Child("secret"), "secrets", projection.Secret != nil)
		r.refuse(at.Child("serviceAccountToken"), "serviceaccounts", projection.ServiceAccountToken != nil)
		r.refuse(at.Child("clusterTrustBundle"), "clustertrustbundles", projection.ClusterTrustBundle != nil)
		r.refuse(at.Child("podCertificate"), "podcertificates", projection.PodCertificate != nil)
		if projection == (v1.VolumeProjection{}) {
			r.found = append(r.found, field.Required(at, "downwardAPI is what a static pod can project"))
		}
	}
}

// ofDriver refuses the secrets of storage drivers; without one, the drivers need no API object.
func (r *references) ofDriver(at *field.Path, source *v1.VolumeSource) {
	secret := func(driver string, ref *v1.LocalObjectReference) {
		r.refuse(at.Child(driver, "secretRef"), "secrets", ref != nil)
	}
	if s := source.CephFS; s != nil {
		secret("cephfs", s.SecretRef)
	}
	if s := source.Cinder; s != nil {
		secret("cinder", s.SecretRef)
	}
	if s := source.FlexVolume; s != nil {
		secret("flexVolume", s.SecretRef)
	}
	if s := source.RBD; s != nil {
		secret("rbd", s.SecretRef)
	}
	if s := source.ScaleIO; s != nil {
		secret("scaleIO", s.SecretRef)
	}
	if s := source.ISCSI; s != nil {
		secret("iscsi", s.SecretRef)
	}
	if s := source.StorageOS; s != nil {
		secret("storageos", s.SecretRef)
	}
}
