package manifest

import (
	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) checkAffinity(at *field.Path, affinity *v1.Affinity) {
	if node := affinity.NodeAffinity; node != nil {
		c.checkNodeAffinity(at.Child("nodeAffinity"), node)
	}
	if pod := affinity.PodAffinity; pod != nil {
		c.checkPodTerms(at.Child("podAffinity"), pod.RequiredDuringSchedulingIgnoredDuringExecution,
			pod.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if pod := affinity.PodAntiAffinity; pod != nil {
		c.checkPodTerms(at.Child("podAntiAffinity"), pod.RequiredDuringSchedulingIgnoredDuringExecution,
			pod.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

func (c *checker) checkNodeAffinity(at *field.Path, node *v1.NodeAffinity) {
	if required := node.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		at := at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
		if len(required.NodeSelectorTerms) == 0 {
			c.required(at, "")
		}
		for i, term := range required.NodeSelectorTerms {
			c.checkNodeTerm(at.Index(i), term)
			c.checkNodeValues(at.Index(i).Child("matchExpressions"), term.MatchExpressions)
		}
	}
	at = at.Child("preferredDuringSchedulingIgnoredDuringExecution")
	for i, preferred := range node.PreferredDuringSchedulingIgnoredDuringExecution {
		c.checkWeight(at.Index(i).Child("weight"), preferred.Weight)
		c.checkNodeTerm(at.Index(i).Child("preference"), preferred.Preference)
	}
}

func (c *checker) checkWeight(at *field.Path, weight int32) {
	c.invalid(at, weight, validation.IsInRange(int(weight), 1, 100)...)
}

func (c *checker) checkNodeTerm(at *field.Path, term v1.NodeSelectorTerm) {
	for i, requirement := range term.MatchExpressions {
		at := at.Child("matchExpressions").Index(i)
		c.invalid(at.Child("key"), requirement.Key, validation.IsQualifiedName(requirement.Key)...)
		switch values := at.Child("values"); requirement.Operator {
		case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
			if len(requirement.Values) == 0 {
				c.required(values, "with this operator")
			}
		case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
			if len(requirement.Values) > 0 {
				c.forbidden(values, "may not be set with this operator")
			}
		case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
			if len(requirement.Values) != 1 {
				c.required(values, "exactly one with this operator")
			}
		default:
			oneOf(c, at.Child("operator"), requirement.Operator, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn,
				v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt)
		}
	}
	for i, requirement := range term.MatchFields {
		c.checkNodeField(at.Child("matchFields").Index(i), requirement)
	}
}

// checkNodeValues looks at values that must be matched; those that are preferred may be anything.
func (c *checker) checkNodeValues(at *field.Path, requirements []v1.NodeSelectorRequirement) {
	for i, requirement := range requirements {
		for j, value := range requirement.Values {
			c.invalid(at.Index(i).Child("values").Index(j), value, validation.IsValidLabelValue(value)...)
		}
	}
}

func (c *checker) checkNodeField(at *field.Path, requirement v1.NodeSelectorRequirement) {
	oneOf(c, at.Child("key"), requirement.Key, metav1.ObjectNameField)
	oneOf(c, at.Child("operator"), requirement.Operator, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn)
	if len(requirement.Values) != 1 {
		c.required(at.Child("values"), "exactly one")
	}
	for i, value := range requirement.Values {
		c.invalid(at.Child("values").Index(i), value, apivalidation.NameIsDNSSubdomain(value, false)...)
	}
}

func (c *checker) checkPodTerms(at *field.Path, required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm) {
	for i, term := range required {
		c.checkPodTerm(at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i), term)
	}
	at = at.Child("preferredDuringSchedulingIgnoredDuringExecution")
	for i, term := range preferred {
		c.checkWeight(at.Index(i).Child("weight"), term.Weight)
		c.checkPodTerm(at.Index(i).Child("podAffinityTerm"), term.PodAffinityTerm)
	}
}

func (c *checker) checkPodTerm(at *field.Path, term v1.PodAffinityTerm) {
	c.checkSelector(at.Child("labelSelector"), term.LabelSelector)
	c.checkSelector(at.Child("namespaceSelector"), term.NamespaceSelector)
	for i, name := range term.Namespaces {
		c.invalid(at.Child("namespaces").Index(i), name, apivalidation.ValidateNamespaceName(name, false)...)
	}
	c.checkLabelKeys(at, term.LabelSelector, term.MatchLabelKeys, term.MismatchLabelKeys)
	c.named(at.Child("topologyKey"), term.TopologyKey, validation.IsQualifiedName)
}
