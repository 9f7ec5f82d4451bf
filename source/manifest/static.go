package manifest

import (
	"regexp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/heraldnode/herald/podid"
)

// makeStatic turns a defaulted pod into a static pod of the origin's node. uid is for a pod whose author gave none.
func makeStatic(pod *v1.Pod, uid types.UID, origin Origin) {
	if pod.UID == "" {
		pod.UID = uid
	}
	if pod.Name != "" {
		pod.Name += "-" + origin.NodeName // CFG-4; it is lower-case, or Decode had refused it
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

// tolerateNoExecute makes sure that no taint evicts the pod; an own toleration of the same kind loses its time limit
// (CFG-7).
func tolerateNoExecute(spec *v1.PodSpec) {
	everything := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	found := false
	for i := range spec.Tolerations {
		if spec.Tolerations[i].MatchToleration(&everything) {
			spec.Tolerations[i] = everything
			found = true
		}
	}
	if !found {
		spec.Tolerations = append(spec.Tolerations, everything)
	}
}

// safeUID is what may stand in the path of a pod's directory.
var safeUID = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// checkAuthored finds metadata that the author of a static pod may not leave out or set.
func checkAuthored(pod *v1.Pod, at *field.Path) (wrong field.ErrorList) {
	if pod.Name == "" {
		wrong = append(wrong, field.Required(at.Child("name"), ""))
	}
	if uid := string(pod.UID); uid != "" && !safeUID.MatchString(uid) {
		why := "must consist of at most 63 letters, digits and '-', with a letter or digit at both ends"
		wrong = append(wrong, field.Invalid(at.Child("uid"), uid, why))
	}
	for name, set := range map[string]bool{
		"generateName":               pod.GenerateName != "",
		"deletionTimestamp":          pod.DeletionTimestamp != nil,
		"deletionGracePeriodSeconds": pod.DeletionGracePeriodSeconds != nil,
		"ownerReferences":            len(pod.OwnerReferences) > 0,
		"finalizers":                 len(pod.Finalizers) > 0,
	} {
		if set {
			wrong = append(wrong, field.Forbidden(at.Child(name), "may not be set for a static pod"))
		}
	}
	if podid.IsMirror(pod) {
		mirror := at.Child("annotations").Key(podid.MirrorAnnotation)
		wrong = append(wrong, field.Forbidden(mirror, "this is the API server's mirror of a static pod, not its manifest"))
	}
	return wrong
}
