package manifest

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateScheduling validates fields that have no effect on a static pod, but for which the API server would reject the
// mirror pod.
func (v *validator) validateScheduling(spec *field.Path) {
	if len(v.spec.SchedulingGates) > 0 {
		v.forbidden(spec.Child("schedulingGates"), "a static pod is not scheduled")
	}
	if name := v.spec.PriorityClassName; name != "" {
		v.invalid(spec.Child("priorityClassName"), name, apivalidation.NameIsDNSSubdomain(name, false)...)
	}
	requireOneOfIfSet(v, spec.Child("preemptionPolicy"), v.spec.PreemptionPolicy, v1.PreemptLowerPriority, v1.PreemptNever)
	if group := v.spec.SchedulingGroup; group != nil {
		at := spec.Child("schedulingGroup", "podGroupName")
		if group.PodGroupName == nil {
			v.required(at, "")
		} else {
			v.invalid(at, *group.PodGroupName, apivalidation.NameIsDNSSubdomain(*group.PodGroupName, false)...)
		}
	}
	v.validateLabels(spec.Child("nodeSelector"), v.spec.NodeSelector)
	v.validateTolerations(spec.Child("tolerations"), v.spec.Tolerations)
	v.validateSpread(spec.Child("topologySpreadConstraints"))
	if affinity := v.spec.Affinity; affinity != nil {
		v.validateAffinity(spec.Child("affinity"), affinity)
	}
}

func (v *validator) validateTolerations(at *field.Path, tolerations []v1.Toleration) {
	for i, toleration := range tolerations {
		at := at.Index(i)
		if toleration.Key != "" {
			v.invalid(at.Child("key"), toleration.Key, validation.IsQualifiedName(toleration.Key)...)
		} else if toleration.Operator != v1.TolerationOpExists {
			v.invalid(at.Child("operator"), toleration.Operator, "must be Exists when key is empty")
		}
		switch toleration.Operator {
		case v1.TolerationOpExists:
			if toleration.Value != "" {
				v.invalid(at.Child("value"), toleration.Value, "must be empty when operator is Exists")
			}
		case v1.TolerationOpEqual, "":
			v.invalid(at.Child("value"), toleration.Value, validation.IsValidLabelValue(toleration.Value)...)
		default:
			requireOneOf(v, at.Child("operator"), toleration.Operator, v1.TolerationOpEqual, v1.TolerationOpExists)
		}
		if toleration.Effect != "" {
			requireOneOf(v, at.Child("effect"), toleration.Effect,
				v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)
		}
		if toleration.TolerationSeconds != nil && toleration.Effect != v1.TaintEffectNoExecute {
			v.invalid(at.Child("effect"), toleration.Effect, "must be NoExecute when tolerationSeconds is set")
		}
	}
}

func (v *validator) validateSpread(at *field.Path) {
	seen := make(map[string]bool)
	for i, constraint := range v.spec.TopologySpreadConstraints {
		at := at.Index(i)
		v.requireMin(at.Child("maxSkew"), int64(constraint.MaxSkew), 1)
		v.require(at.Child("topologyKey"), constraint.TopologyKey)
		requireOneOf(v, at.Child("whenUnsatisfiable"), constraint.WhenUnsatisfiable, v1.DoNotSchedule, v1.ScheduleAnyway)
		requireUnique(v, at.Child("topologyKey"), seen, constraint.TopologyKey+" "+string(constraint.WhenUnsatisfiable))
		if domains := constraint.MinDomains; domains != nil {
			v.requireMin(at.Child("minDomains"), int64(*domains), 1)
			if constraint.WhenUnsatisfiable != v1.DoNotSchedule {
				v.forbidden(at.Child("minDomains"), "requires whenUnsatisfiable: DoNotSchedule")
			}
		}
		for name, policy := range map[string]*v1.NodeInclusionPolicy{
			"nodeAffinityPolicy": constraint.NodeAffinityPolicy, "nodeTaintsPolicy": constraint.NodeTaintsPolicy,
		} {
			requireOneOfIfSet(v, at.Child(name), policy, v1.NodeInclusionPolicyIgnore, v1.NodeInclusionPolicyHonor)
		}
		v.validateLabelKeys(at, constraint.LabelSelector, constraint.MatchLabelKeys, nil)
		v.validateSelector(at.Child("labelSelector"), constraint.LabelSelector)
	}
}

func (v *validator) validateSelector(at *field.Path, selector *metav1.LabelSelector) {
	v.add(metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, at)...)
}

// validateLabelKeys validates the keys whose values are taken from the pod and added to the selector.
func (v *validator) validateLabelKeys(at *field.Path, selector *metav1.LabelSelector, match, mismatch []string) {
	for name, keys := range map[string][]string{"matchLabelKeys": match, "mismatchLabelKeys": mismatch} {
		if len(keys) > 0 && selector == nil {
			v.forbidden(at.Child(name), "requires a labelSelector")
		}
		for i, key := range keys {
			v.invalid(at.Child(name).Index(i), key, validation.IsQualifiedName(key)...)
		}
	}
	for i, key := range match {
		if slices.Contains(mismatch, key) {
			v.invalid(at.Child("matchLabelKeys").Index(i), key, "is also in mismatchLabelKeys")
		}
		if selector != nil && isAmbiguous(selector, key) {
			v.invalid(at.Child("matchLabelKeys").Index(i), key, "is also in labelSelector, more than once")
		}
	}
}

// isAmbiguous reports whether the selector has the key more than once. The API server itself adds matchLabelKeys once.
func isAmbiguous(selector *metav1.LabelSelector, key string) bool {
	count := 0
	for _, requirement := range selector.MatchExpressions {
		if requirement.Key == key {
			count++
		}
	}
	_, matched := selector.MatchLabels[key]
	return count > 1 || count == 1 && matched
}

func (v *validator) validateAffinity(at *field.Path, affinity *v1.Affinity) {
	if node := affinity.NodeAffinity; node != nil {
		v.validateNodeAffinity(at.Child("nodeAffinity"), node)
	}
	if pod := affinity.PodAffinity; pod != nil {
		v.validatePodTerms(at.Child("podAffinity"), pod.RequiredDuringSchedulingIgnoredDuringExecution,
			pod.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if pod := affinity.PodAntiAffinity; pod != nil {
		v.validatePodTerms(at.Child("podAntiAffinity"), pod.RequiredDuringSchedulingIgnoredDuringExecution,
			pod.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

func (v *validator) validateNodeAffinity(at *field.Path, node *v1.NodeAffinity) {
	if required := node.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		at := at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
		if len(required.NodeSelectorTerms) == 0 {
			v.required(at, "")
		}
		for i, term := range required.NodeSelectorTerms {
			v.validateNodeTerm(at.Index(i), term)
			v.validateNodeValues(at.Index(i).Child("matchExpressions"), term.MatchExpressions)
		}
	}
	at = at.Child("preferredDuringSchedulingIgnoredDuringExecution")
	for i, preferred := range node.PreferredDuringSchedulingIgnoredDuringExecution {
		v.validateWeight(at.Index(i).Child("weight"), preferred.Weight)
		v.validateNodeTerm(at.Index(i).Child("preference"), preferred.Preference)
	}
}

func (v *validator) validateWeight(at *field.Path, weight int32) {
	v.invalid(at, weight, validation.IsInRange(int(weight), 1, 100)...)
}

func (v *validator) validateNodeTerm(at *field.Path, term v1.NodeSelectorTerm) {
	for i, requirement := range term.MatchExpressions {
		at := at.Child("matchExpressions").Index(i)
		v.invalid(at.Child("key"), requirement.Key, validation.IsQualifiedName(requirement.Key)...)
		switch values := at.Child("values"); requirement.Operator {
		case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
			if len(requirement.Values) == 0 {
				v.required(values, "must have a value with this operator")
			}
		case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
			if len(requirement.Values) > 0 {
				v.forbidden(values, "may not be set with this operator")
			}
		case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
			if len(requirement.Values) != 1 {
				v.required(values, "must have exactly one value with this operator")
			}
		default:
			requireOneOf(v, at.Child("operator"), requirement.Operator, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn,
				v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt)
		}
	}
	for i, requirement := range term.MatchFields {
		v.validateNodeField(at.Child("matchFields").Index(i), requirement)
	}
}

// validateNodeValues validates required values. Preferred values may be anything.
func (v *validator) validateNodeValues(at *field.Path, requirements []v1.NodeSelectorRequirement) {
	for i, requirement := range requirements {
		for j, value := range requirement.Values {
			v.invalid(at.Index(i).Child("values").Index(j), value, validation.IsValidLabelValue(value)...)
		}
	}
}

func (v *validator) validateNodeField(at *field.Path, requirement v1.NodeSelectorRequirement) {
	requireOneOf(v, at.Child("key"), requirement.Key, metav1.ObjectNameField)
	requireOneOf(v, at.Child("operator"), requirement.Operator, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn)
	if len(requirement.Values) != 1 {
		v.required(at.Child("values"), "must have exactly one value")
	}
	for i, value := range requirement.Values {
		v.invalid(at.Child("values").Index(i), value, apivalidation.NameIsDNSSubdomain(value, false)...)
	}
}

func (v *validator) validatePodTerms(at *field.Path, required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm) {
	for i, term := range required {
		v.validatePodTerm(at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i), term)
	}
	at = at.Child("preferredDuringSchedulingIgnoredDuringExecution")
	for i, term := range preferred {
		v.validateWeight(at.Index(i).Child("weight"), term.Weight)
		v.validatePodTerm(at.Index(i).Child("podAffinityTerm"), term.PodAffinityTerm)
	}
}

func (v *validator) validatePodTerm(at *field.Path, term v1.PodAffinityTerm) {
	v.validateSelector(at.Child("labelSelector"), term.LabelSelector)
	v.validateSelector(at.Child("namespaceSelector"), term.NamespaceSelector)
	for i, name := range term.Namespaces {
		v.invalid(at.Child("namespaces").Index(i), name, apivalidation.ValidateNamespaceName(name, false)...)
	}
	v.validateLabelKeys(at, term.LabelSelector, term.MatchLabelKeys, term.MismatchLabelKeys)
	v.requireValid(at.Child("topologyKey"), term.TopologyKey, validation.IsQualifiedName)
}
