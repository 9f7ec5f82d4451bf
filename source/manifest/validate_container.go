package manifest

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/heraldnode/herald/internal/restart"
)

const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

// eachContainer visits init containers and containers, in the order in which they start.
func (c *checker) eachContainer(spec *field.Path, visit func(*v1.Container, *field.Path)) {
	for i := range c.spec.InitContainers {
		visit(&c.spec.InitContainers[i], spec.Child("initContainers").Index(i))
	}
	for i := range c.spec.Containers {
		visit(&c.spec.Containers[i], spec.Child("containers").Index(i))
	}
}

func (c *checker) checkContainers(spec *field.Path) {
	if len(c.spec.Containers) == 0 {
		c.required(spec.Child("containers"), "")
	}
	if len(c.spec.EphemeralContainers) > 0 {
		c.forbidden(spec.Child("ephemeralContainers"), "may be added to a running pod only")
	}
	names := make(map[string]bool)
	c.eachContainer(spec, func(container *v1.Container, at *field.Path) {
		unique(c, at.Child("name"), names, container.Name)
		c.checkContainer(at, container)
	})
	for i := range c.spec.InitContainers {
		c.checkInitContainer(spec.Child("initContainers").Index(i), &c.spec.InitContainers[i])
	}
	for i := range c.spec.Containers {
		c.checkHooksAndProbes(spec.Child("containers").Index(i), &c.spec.Containers[i])
	}
	c.checkHostPorts(spec)
}

// checkContainer looks at what all containers have in common.
func (c *checker) checkContainer(at *field.Path, container *v1.Container) {
	c.named(at.Child("name"), container.Name, validation.IsDNS1123Label)
	c.checkImage(at.Child("image"), container.Image)
	c.checkPullPolicy(at.Child("imagePullPolicy"), container.ImagePullPolicy)
	oneOf(c, at.Child("terminationMessagePolicy"), container.TerminationMessagePolicy,
		v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	c.checkPorts(at.Child("ports"), container.Ports)
	c.checkEnv(at, container)
	c.checkMounts(at, container)
	c.checkResources(at.Child("resources"), &container.Resources, isContainerResource)
	c.checkResizePolicy(at.Child("resizePolicy"), container.ResizePolicy)
	c.checkRestartPolicy(at, container)
	c.checkSecurity(at.Child("securityContext"), container)
}

func (c *checker) checkImage(at *field.Path, image string) {
	switch {
	case image == "":
		c.required(at, "")
	case strings.TrimSpace(image) != image:
		c.invalid(at, image, "must not begin or end with blanks")
	}
}

func (c *checker) checkPullPolicy(at *field.Path, policy v1.PullPolicy) {
	oneOf(c, at, policy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
}

// checkInitContainer allows hooks and probes for sidecars only: other init containers end before anybody could ask.
func (c *checker) checkInitContainer(at *field.Path, container *v1.Container) {
	if restart.IsSidecar(container) {
		c.checkHooksAndProbes(at, container)
		return
	}
	for name, set := range map[string]bool{
		"lifecycle":      container.Lifecycle != nil,
		"livenessProbe":  container.LivenessProbe != nil,
		"readinessProbe": container.ReadinessProbe != nil,
		"startupProbe":   container.StartupProbe != nil,
	} {
		if set {
			c.forbidden(at.Child(name), "may be set for an init container with restartPolicy: Always only")
		}
	}
	for i, policy := range container.ResizePolicy {
		if policy.RestartPolicy == v1.RestartContainer {
			c.invalid(at.Child("resizePolicy").Index(i).Child("restartPolicy"), policy.RestartPolicy,
				"may be set for an init container with restartPolicy: Always only")
		}
	}
}

func (c *checker) checkResizePolicy(at *field.Path, policies []v1.ContainerResizePolicy) {
	seen := make(map[v1.ResourceName]bool)
	for i, policy := range policies {
		at := at.Index(i)
		oneOf(c, at.Child("resourceName"), policy.ResourceName, v1.ResourceCPU, v1.ResourceMemory)
		unique(c, at.Child("resourceName"), seen, policy.ResourceName)
		oneOf(c, at.Child("restartPolicy"), policy.RestartPolicy, v1.NotRequired, v1.RestartContainer)
		if c.spec.RestartPolicy == v1.RestartPolicyNever && policy.RestartPolicy != v1.NotRequired {
			c.invalid(at.Child("restartPolicy"), policy.RestartPolicy, "must be NotRequired when the pod's restartPolicy is Never")
		}
	}
}

// checkRestartPolicy looks at a container's own restart policy, which goes before the pod's, and at its rules.
func (c *checker) checkRestartPolicy(at *field.Path, container *v1.Container) {
	rules := container.RestartPolicyRules
	oneOfIfSet(c, at.Child("restartPolicy"), container.RestartPolicy,
		v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)
	if container.RestartPolicy == nil && len(rules) > 0 {
		c.required(at.Child("restartPolicy"), "with restartPolicyRules")
	}
	at = at.Child("restartPolicyRules")
	if len(rules) > maxRestartRules {
		c.add(field.TooMany(at, len(rules), maxRestartRules))
	}
	for i, rule := range rules {
		at := at.Index(i)
		oneOf(c, at.Child("action"), rule.Action,
			v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers)
		if rule.ExitCodes == nil {
			c.required(at.Child("exitCodes"), "")
			continue
		}
		at = at.Child("exitCodes")
		oneOf(c, at.Child("operator"), rule.ExitCodes.Operator,
			v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)
		if len(rule.ExitCodes.Values) > maxExitCodes {
			c.add(field.TooMany(at.Child("values"), len(rule.ExitCodes.Values), maxExitCodes))
		}
	}
}
