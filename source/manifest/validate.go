package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate returns the errors for which the API server would reject a defaulted static pod (CFG-9), so that no invalid pod
// runs and the mirror pod can be created. base is the position of the pod in its document. References to API objects are
// not validated in detail, because forbidReferences rejects them.
func validate(pod *v1.Pod, base *field.Path) field.ErrorList {
	v := &validator{pod: pod, spec: &pod.Spec, volumes: make(map[string]*v1.Volume)}
	for i := range pod.Spec.Volumes {
		v.volumes[pod.Spec.Volumes[i].Name] = &pod.Spec.Volumes[i]
	}
	spec := base.Child("spec")
	v.validateMetadata(base.Child("metadata"))
	v.validateVolumes(spec.Child("volumes"))
	v.validateContainers(spec)
	v.validatePodResources(spec)
	v.validatePodSecurity(spec)
	v.validateNetwork(spec)
	v.validateScheduling(spec)
	v.validateLifetime(spec)
	return v.errs
}

// validator collects the errors of one pod.
type validator struct {
	pod     *v1.Pod
	spec    *v1.PodSpec
	volumes map[string]*v1.Volume // by name
	errs    field.ErrorList
}

func (v *validator) add(errs ...*field.Error) { v.errs = append(v.errs, errs...) }

func (v *validator) required(at *field.Path, why string) { v.add(field.Required(at, why)) }

func (v *validator) forbidden(at *field.Path, why string) { v.add(field.Forbidden(at, why)) }

// invalid adds one error for each reason.
func (v *validator) invalid(at *field.Path, value any, reasons ...string) {
	for _, why := range reasons {
		v.add(field.Invalid(at, value, why))
	}
}

// require requires a value.
func (v *validator) require(at *field.Path, value string) {
	if value == "" {
		v.required(at, "")
	}
}

// requireValid requires a value that passes the check.
func (v *validator) requireValid(at *field.Path, name string, check func(string) []string) {
	v.require(at, name)
	if name != "" {
		v.invalid(at, name, check(name)...)
	}
}

// requireUnique adds an error if the value was seen before, and adds the value to seen.
func requireUnique[T comparable](v *validator, at *field.Path, seen map[T]bool, value T) {
	if seen[value] {
		v.add(field.Duplicate(at, value))
	}
	seen[value] = true
}

// requireOneOf requires one of the allowed values.
func requireOneOf[T ~string](v *validator, at *field.Path, value T, allowed ...T) {
	switch {
	case slices.Contains(allowed, value):
	case value == "":
		v.required(at, "")
	default:
		v.add(field.NotSupported(at, value, allowed))
	}
}

// requireOneOfIfSet is requireOneOf for an optional value.
func requireOneOfIfSet[T ~string](v *validator, at *field.Path, value *T, allowed ...T) {
	if value != nil {
		requireOneOf(v, at, *value, allowed...)
	}
}

// requireMin requires a number that is not below the minimum.
func (v *validator) requireMin(at *field.Path, value, minimum int64) {
	if value < minimum {
		v.invalid(at, value, fmt.Sprintf("must be at least %d", minimum))
	}
}

// requireRelativePath requires a relative path without "..".
func (v *validator) requireRelativePath(at *field.Path, value string) {
	if path.IsAbs(value) {
		v.invalid(at, value, "must be a relative path")
	}
	v.forbidBacksteps(at, value)
}

func (v *validator) forbidBacksteps(at *field.Path, value string) {
	if slices.Contains(strings.Split(value, "/"), "..") {
		v.invalid(at, value, "must not contain '..'")
	}
}

// validateMode requires permission bits of a file.
func (v *validator) validateMode(at *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		v.invalid(at, *mode, "must be between 0000 and 0777 octal (0 and 511 decimal)")
	}
}

// validateMetadata validates the name with the node's suffix, because that is the name of the mirror pod.
func (v *validator) validateMetadata(at *field.Path) {
	if v.pod.Name != "" {
		v.invalid(at.Child("name"), v.pod.Name, apivalidation.NameIsDNSSubdomain(v.pod.Name, false)...)
	}
	v.invalid(at.Child("namespace"), v.pod.Namespace, apivalidation.ValidateNamespaceName(v.pod.Namespace, false)...)
	v.validateLabels(at.Child("labels"), v.pod.Labels)
	v.validateAnnotations(at.Child("annotations"))
}

// validateLabels includes the key in the path, so that the error has the line of the label.
func (v *validator) validateLabels(at *field.Path, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		v.invalid(at.Key(key), key, validation.IsQualifiedName(key)...)
		v.invalid(at.Key(key), labels[key], validation.IsValidLabelValue(labels[key])...)
	}
}

func (v *validator) validateAnnotations(at *field.Path) {
	annotations := v.pod.Annotations
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		v.invalid(at.Key(key), key, validation.IsQualifiedName(strings.ToLower(key))...)
		v.validateAnnotation(at.Key(key), key, annotations[key])
	}
	if err := apivalidation.ValidateAnnotationsSize(annotations); err != nil {
		v.add(field.TooLong(at, "", apivalidation.TotalAnnotationSizeLimitB))
	}
}

// validateAnnotation validates the annotations that Kubernetes interprets.
func (v *validator) validateAnnotation(at *field.Path, key, value string) {
	switch {
	case key == v1.PodDeletionCost:
		if cost, err := strconv.ParseInt(value, 10, 32); err != nil || !isPlainInteger(value, cost) {
			v.invalid(at, value, "must be a 32 bit integer")
		}
	case key == v1.TolerationsAnnotationKey && value != "":
		var tolerations []v1.Toleration
		if err := json.Unmarshal([]byte(value), &tolerations); err != nil {
			v.invalid(at, value, "must be a JSON list of tolerations")
			return
		}
		v.validateTolerations(at, tolerations)
	case key == v1.SeccompPodAnnotationKey, strings.HasPrefix(key, v1.SeccompContainerAnnotationKeyPrefix):
		v.validateSeccompAnnotation(at, key, value)
	case strings.HasPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix):
		name := strings.TrimPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		v.validateAppArmorAnnotation(at, name, value)
	}
}

// isPlainInteger reports whether the text has neither a plus sign nor leading zeros. Like the API server, it allows leading
// zeros after a minus sign.
func isPlainInteger(text string, number int64) bool {
	return strings.HasPrefix(text, "-") || text == strconv.FormatInt(number, 10)
}

// validateLifetime validates restart policy, deadlines, operating system, runtime class and readiness gates.
func (v *validator) validateLifetime(spec *field.Path) {
	requireOneOf(v, spec.Child("restartPolicy"), v.spec.RestartPolicy,
		v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	v.requireMin(spec.Child("terminationGracePeriodSeconds"), *v.spec.TerminationGracePeriodSeconds, 0)
	if deadline := v.spec.ActiveDeadlineSeconds; deadline != nil && (*deadline < 1 || *deadline > math.MaxInt32) {
		v.invalid(spec.Child("activeDeadlineSeconds"), *deadline, validation.InclusiveRangeError(1, math.MaxInt32))
	}
	if v.spec.OS != nil {
		requireOneOf(v, spec.Child("os", "name"), v.spec.OS.Name, v1.Linux)
	}
	if name := v.spec.RuntimeClassName; name != nil {
		v.invalid(spec.Child("runtimeClassName"), *name, apivalidation.NameIsDNSSubdomain(*name, false)...)
	}
	for i, gate := range v.spec.ReadinessGates {
		at := spec.Child("readinessGates").Index(i).Child("conditionType")
		v.invalid(at, gate.ConditionType, validation.IsQualifiedName(string(gate.ConditionType))...)
	}
}

// Limits of the C library's resolver.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
	maxHostname     = 64
)

// validateNetwork validates host names, host aliases and DNS settings.
func (v *validator) validateNetwork(spec *field.Path) {
	if v.spec.Hostname != "" {
		v.invalid(spec.Child("hostname"), v.spec.Hostname, validation.IsDNS1123Label(v.spec.Hostname)...)
	}
	if v.spec.Subdomain != "" {
		v.invalid(spec.Child("subdomain"), v.spec.Subdomain, validation.IsDNS1123Label(v.spec.Subdomain)...)
	}
	v.validateHostnameOverride(spec.Child("hostnameOverride"))
	for i, alias := range v.spec.HostAliases {
		at := spec.Child("hostAliases").Index(i)
		v.add(validation.IsValidIPForLegacyField(at.Child("ip"), alias.IP, true, nil)...)
		for j, name := range alias.Hostnames {
			v.invalid(at.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name)...)
		}
	}
	requireOneOf(v, spec.Child("dnsPolicy"), v.spec.DNSPolicy,
		v1.DNSClusterFirstWithHostNet, v1.DNSClusterFirst, v1.DNSDefault, v1.DNSNone)
	v.validateDNSConfig(spec.Child("dnsConfig"))
}

func (v *validator) validateHostnameOverride(at *field.Path) {
	name := v.spec.HostnameOverride
	if name == nil {
		return
	}
	v.invalid(at, *name, validation.IsDNS1123Subdomain(*name)...)
	if len(*name) > maxHostname {
		v.add(field.TooLong(at, "", maxHostname))
	}
	if v.spec.SetHostnameAsFQDN != nil && *v.spec.SetHostnameAsFQDN {
		v.forbidden(at, "may not be set together with setHostnameAsFQDN")
	}
	if v.spec.HostNetwork {
		v.forbidden(at, "may not be set when hostNetwork is true")
	}
}

func (v *validator) validateDNSConfig(at *field.Path) {
	config := v.spec.DNSConfig
	if config == nil {
		config = &v1.PodDNSConfig{}
	}
	nameservers, searches := at.Child("nameservers"), at.Child("searches")
	switch {
	case v.spec.DNSPolicy == v1.DNSNone && len(config.Nameservers) == 0:
		v.required(nameservers, "must have at least one when dnsPolicy is None")
	case len(config.Nameservers) > maxNameservers:
		v.add(field.TooMany(nameservers, len(config.Nameservers), maxNameservers))
	}
	for i, server := range config.Nameservers {
		v.add(validation.IsValidIPForLegacyField(nameservers.Index(i), server, true, nil)...)
	}
	if len(config.Searches) > maxSearches {
		v.add(field.TooMany(searches, len(config.Searches), maxSearches))
	}
	if len(strings.Join(config.Searches, " ")) > maxSearchLength {
		v.invalid(searches, len(config.Searches), fmt.Sprintf("must have at most %d characters in total", maxSearchLength))
	}
	for i, domain := range config.Searches {
		if domain != "." {
			domain = strings.TrimSuffix(domain, ".")
			v.invalid(searches.Index(i), domain, validation.IsDNS1123SubdomainWithUnderscore(domain)...)
		}
	}
	for i, option := range config.Options {
		if option.Name == "" {
			v.required(at.Child("options").Index(i).Child("name"), "")
		}
	}
}
