package manifest

import (
	"fmt"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/heraldnode/herald/podid"
)

// SetUID gives a static pod the UID under which another agent has started it. It reports whether that is possible: the manifest
// must not have a UID itself, and the UID must be one that a manifest could have.
func SetUID(pod *v1.Pod, uid types.UID) bool {
	if !strings.HasPrefix(string(pod.UID), hashVersion+"-") || !safeUID.MatchString(string(uid)) {
		return false
	}
	pod.UID = uid
	pod.Annotations[podid.HashAnnotation] = string(uid)
	return true
}

// makeStatic turns a defaulted pod into a static pod of the origin's node. The uid is used if the manifest has none.
func makeStatic(pod *v1.Pod, uid types.UID, origin Origin) {
	if pod.UID == "" {
		pod.UID = uid
	}
	if pod.Name != "" {
		pod.Name += "-" + origin.NodeName // CFG-4; Decode rejects a node name that is not lower-case
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault // CFG-5
	}
	pod.Spec.NodeName = origin.NodeName
	if pod.Annotations == nil {
		pod.Annotations = make(map[string]string)
	}
	pod.Annotations[podid.HashAnnotation] = string(pod.UID) // CFG-3, CFG-6
	pod.Annotations[podid.SourceAnnotation] = string(origin.Source)
	delete(pod.Annotations, podid.SeenAnnotation)
	if origin.Source == podid.File {
		tolerateNoExecute(&pod.Spec)
	}
	pod.Status = v1.PodStatus{Phase: v1.PodPending} // CFG-8
}

// tolerateNoExecute adds a toleration of all NoExecute taints. If the pod has it with a time limit, the limit is removed
// (CFG-7).
func tolerateNoExecute(spec *v1.PodSpec) {
	all := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	found := false
	for i := range spec.Tolerations {
		if spec.Tolerations[i].MatchToleration(&all) {
			spec.Tolerations[i] = all
			found = true
		}
	}
	if !found {
		spec.Tolerations = append(spec.Tolerations, all)
	}
}

// safeUID matches the UIDs that are safe in the path of the pod's directory.
var safeUID = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// validateRawMetadata requires the name of a static pod and rejects metadata that its manifest must not set.
func validateRawMetadata(pod *v1.Pod, at *field.Path) (errs field.ErrorList) {
	if pod.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	if uid := string(pod.UID); uid != "" && !safeUID.MatchString(uid) {
		reason := "must consist of at most 63 letters, digits and '-', with a letter or digit at both ends"
		errs = append(errs, field.Invalid(at.Child("uid"), uid, reason))
	}
	for name, set := range map[string]bool{
		"generateName":               pod.GenerateName != "",
		"deletionTimestamp":          pod.DeletionTimestamp != nil,
		"deletionGracePeriodSeconds": pod.DeletionGracePeriodSeconds != nil,
		"ownerReferences":            len(pod.OwnerReferences) > 0,
		"finalizers":                 len(pod.Finalizers) > 0,
	} {
		if set {
			errs = append(errs, field.Forbidden(at.Child(name), "may not be set for a static pod"))
		}
	}
	if podid.IsMirror(pod) {
		mirror := at.Child("annotations").Key(podid.MirrorAnnotation)
		errs = append(errs, field.Forbidden(mirror, "this is a mirror pod, not the manifest of a static pod"))
	}
	return errs
}

// forbidReferences rejects references to API objects: a static pod must start without an API server, and the API server
// rejects the mirror pod of a pod with such a reference (CFG-10). The downward API is allowed.
func forbidReferences(pod *v1.Pod, spec *field.Path) field.ErrorList {
	r := new(referenceChecker)
	r.forbid(spec.Child("serviceAccountName"), "serviceaccounts", pod.Spec.ServiceAccountName != "")
	r.forbid(spec.Child("serviceAccount"), "serviceaccounts", pod.Spec.DeprecatedServiceAccount != "")
	r.forbid(spec.Child("resourceClaims"), "resourceclaims", len(pod.Spec.ResourceClaims) > 0)
	for i, secret := range pod.Spec.ImagePullSecrets {
		r.forbid(spec.Child("imagePullSecrets").Index(i), "secrets", secret.Name != "")
	}
	if pod.Spec.Resources != nil {
		r.forbid(spec.Child("resources", "claims"), "resourceclaims", pod.Spec.Resources.Claims != nil)
	}
	for i := range pod.Spec.InitContainers {
		r.checkContainer(spec.Child("initContainers").Index(i), &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		r.checkContainer(spec.Child("containers").Index(i), &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.Volumes {
		at := spec.Child("volumes").Index(i)
		r.checkVolume(at, &pod.Spec.Volumes[i].VolumeSource)
		r.checkDriver(at, &pod.Spec.Volumes[i].VolumeSource)
	}
	return r.errs
}

type referenceChecker struct{ errs field.ErrorList }

func (r *referenceChecker) forbid(at *field.Path, resource string, set bool) {
	if set {
		r.errs = append(r.errs, field.Forbidden(at, "static pods may not reference "+resource))
	}
}

func (r *referenceChecker) checkContainer(at *field.Path, container *v1.Container) {
	r.forbid(at.Child("resources", "claims"), "resourceclaims", len(container.Resources.Claims) > 0)
	for i, source := range container.EnvFrom {
		at := at.Child("envFrom").Index(i)
		r.forbid(at.Child("configMapRef"), "configmaps", source.ConfigMapRef != nil)
		r.forbid(at.Child("secretRef"), "secrets", source.SecretRef != nil)
	}
	for i, variable := range container.Env {
		if from := variable.ValueFrom; from != nil {
			at := at.Child("env").Index(i).Child("valueFrom")
			r.forbid(at.Child("configMapKeyRef"), "configmaps", from.ConfigMapKeyRef != nil)
			r.forbid(at.Child("secretKeyRef"), "secrets", from.SecretKeyRef != nil)
		}
	}
}

func (r *referenceChecker) checkVolume(at *field.Path, source *v1.VolumeSource) {
	r.forbid(at.Child("configMap"), "configmaps", source.ConfigMap != nil)
	r.forbid(at.Child("secret"), "secrets", source.Secret != nil)
	r.forbid(at.Child("persistentVolumeClaim"), "persistentvolumeclaims", source.PersistentVolumeClaim != nil)
	r.forbid(at.Child("ephemeral"), "persistentvolumeclaims", source.Ephemeral != nil)
	r.forbid(at.Child("csi"), "csidrivers", source.CSI != nil)
	r.forbid(at.Child("glusterfs"), "endpoints", source.Glusterfs != nil)
	r.forbid(at.Child("azureFile"), "secrets", source.AzureFile != nil)
	if source.Projected == nil {
		return
	}
	for i, projection := range source.Projected.Sources {
		at := at.Child("projected", "sources").Index(i)
		r.forbid(at.Child("configMap"), "configmaps", projection.ConfigMap != nil)
		r.forbid(at.Child("secret"), "secrets", projection.Secret != nil)
		r.forbid(at.Child("serviceAccountToken"), "serviceaccounts", projection.ServiceAccountToken != nil)
		r.forbid(at.Child("clusterTrustBundle"), "clustertrustbundles", projection.ClusterTrustBundle != nil)
		r.forbid(at.Child("podCertificate"), "podcertificates", projection.PodCertificate != nil)
		if projection == (v1.VolumeProjection{}) {
			r.errs = append(r.errs, field.Required(at, "must have downwardAPI, the only projection of a static pod"))
		}
	}
}

// checkDriver rejects the secrets of storage drivers. Without a secret, they need no API object.
func (r *referenceChecker) checkDriver(at *field.Path, source *v1.VolumeSource) {
	secret := func(driver string, ref *v1.LocalObjectReference) {
		r.forbid(at.Child(driver, "secretRef"), "secrets", ref != nil)
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

// criticalPriorities are the priorities of the classes that every API server has.
var criticalPriorities = map[string]int32{
	"system-node-critical":    2_000_001_000,
	"system-cluster-critical": 2_000_000_000,
}

// Warnings returns the problems of a valid pod that do not prevent it from running: an inconsistent priority and priority
// class, for which the API server may reject the mirror pod (CFG-11), and limits of local storage, which are not enforced.
func Warnings(pod *v1.Pod) []string {
	var warnings []string
	if warning := priorityWarning(pod); warning != "" {
		warnings = append(warnings, warning)
	}
	for i, volume := range pod.Spec.Volumes {
		source := volume.EmptyDir
		if source != nil && source.Medium == v1.StorageMediumDefault && source.SizeLimit != nil && !source.SizeLimit.IsZero() {
			warnings = append(warnings, fmt.Sprintf("spec.volumes[%d].emptyDir.sizeLimit: %s is enforced only with medium Memory, "+
				"because static pods are not evicted; the volume may fill the disk", i, source.SizeLimit))
		}
	}
	for i := range pod.Spec.Containers {
		if limit := pod.Spec.Containers[i].Resources.Limits.StorageEphemeral(); !limit.IsZero() {
			warnings = append(warnings, fmt.Sprintf("spec.containers[%d].resources.limits[ephemeral-storage]: %s is not enforced, "+
				"because static pods are not evicted; the container may fill the disk", i, limit))
		}
	}
	return warnings
}

func priorityWarning(pod *v1.Pod) string {
	class, priority := pod.Spec.PriorityClassName, pod.Spec.Priority
	critical, known := criticalPriorities[class]
	switch {
	case class == "" && priority == nil:
	case class == "":
		return fmt.Sprintf("spec.priority: %d is set without a priorityClassName; "+
			"the API server rejects the mirror pod unless that is its default priority", *priority)
	case priority == nil:
		return fmt.Sprintf("spec.priorityClassName: %s is set without a priority; "+
			"classes are not resolved for static pods, so the pod has no priority on this node", class)
	case known && *priority != critical:
		return fmt.Sprintf("spec.priority: %d is not the priority of %s, which is %d; "+
			"the API server rejects the mirror pod", *priority, class, critical)
	}
	return ""
}
