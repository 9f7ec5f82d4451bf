package manifest

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkMetadata looks at the name with the node's suffix, because that is the one that the mirror gets.
func (c *checker) checkMetadata(at *field.Path) {
	if c.pod.Name != "" {
		c.invalid(at.Child("name"), c.pod.Name, apivalidation.NameIsDNSSubdomain(c.pod.Name, false)...)
	}
	c.invalid(at.Child("namespace"), c.pod.Namespace, apivalidation.ValidateNamespaceName(c.pod.Namespace, false)...)
	c.checkLabels(at.Child("labels"), c.pod.Labels)
	c.checkAnnotations(at.Child("annotations"))
}

// checkLabels names the key in the path, so that the error can point at its line.
func (c *checker) checkLabels(at *field.Path, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		c.invalid(at.Key(key), key, validation.IsQualifiedName(key)...)
		c.invalid(at.Key(key), labels[key], validation.IsValidLabelValue(labels[key])...)
	}
}

func (c *checker) checkAnnotations(at *field.Path) {
	annotations := c.pod.Annotations
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		c.invalid(at.Key(key), key, validation.IsQualifiedName(strings.ToLower(key))...)
		c.checkAnnotation(at.Key(key), key, annotations[key])
	}
	if err := apivalidation.ValidateAnnotationsSize(annotations); err != nil {
		c.add(field.TooLong(at, "", apivalidation.TotalAnnotationSizeLimitB))
	}
}

// checkAnnotation looks at the annotations that mean something to Kubernetes.
func (c *checker) checkAnnotation(at *field.Path, key, value string) {
	switch {
	case key == v1.PodDeletionCost:
		if cost, err := strconv.ParseInt(value, 10, 32); err != nil || !isPlainInteger(value, cost) {
			c.invalid(at, value, "must be a 32 bit integer")
		}
	case key == v1.TolerationsAnnotationKey && value != "":
		var tolerations []v1.Toleration
		if err := json.Unmarshal([]byte(value), &tolerations); err != nil {
			c.invalid(at, value, "must be a list of tolerations in JSON")
			return
		}
		c.checkTolerations(at, tolerations)
	case key == v1.SeccompPodAnnotationKey, strings.HasPrefix(key, v1.SeccompContainerAnnotationKeyPrefix):
		c.checkSeccompAnnotation(at, value)
	case strings.HasPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix):
		name := strings.TrimPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		c.checkAppArmorAnnotation(at, name, value)
	}
}

// isPlainInteger reports whether the text is written as a machine would write the number: no plus sign, no leading zero.
// The API server lets the latter pass behind a minus sign, and so does this.
func isPlainInteger(text string, number int64) bool {
	return strings.HasPrefix(text, "-") || text == strconv.FormatInt(number, 10)
}
