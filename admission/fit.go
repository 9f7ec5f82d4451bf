package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/heraldnode/herald/internal/restart"
	"github.com/heraldnode/herald/podid"
)

// checkResources rejects a pod that requests more than the others leave (ADM-6, ADM-7, ADM-8).
func checkResources(pod *v1.Pod, node Node, others []*v1.Pod) *Rejection {
	found := shortages(pod, node, others)
	if len(found) == 0 {
		return nil
	}
	rejection := outOf(found[0])
	for _, shortage := range found {
		rejection.Shortages = append(rejection.Shortages, Shortage{shortage.name, shortage.requested - (shortage.capacity - shortage.used)})
	}
	return rejection
}

// shortage is a resource of which a pod requests more than the others leave, in the kubelet's units.
type shortage struct {
	name                      v1.ResourceName
	requested, used, capacity int64
}

// shortages returns what the node lacks for the pod, in the order in which it is reported. A pod that requests nothing fits a node
// that is overcommitted.
func shortages(pod *v1.Pod, node Node, others []*v1.Pod) (found []shortage) {
	if capacity := node.Allocatable.Pods().Value(); int64(len(others)) >= capacity {
		found = append(found, shortage{v1.ResourcePods, 1, int64(len(others)), capacity})
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	used := v1.ResourceList{}
	for _, other := range others {
		for name, quantity := range resourcehelper.PodRequests(other, resourcehelper.PodResourcesOptions{}) {
			sum := used[name]
			sum.Add(quantity)
			used[name] = sum
		}
	}
	for _, name := range resourceOrder(requests) {
		if _, offered := node.Allocatable[name]; isExtendedResource(name) && !offered {
			continue // ADM-9: the resource may belong to the cluster rather than to nodes
		}
		requested, inUse, capacity := amount(name, requests), amount(name, used), amount(name, node.Allocatable)
		if requested > 0 && requested > capacity-inUse {
			found = append(found, shortage{name, requested, inUse, capacity})
		}
	}
	return found
}

func outOf(s shortage) *Rejection {
	rejection := &Rejection{
		Reason: reasonOutOf + string(s.name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			s.name, s.requested, s.used, s.capacity),
		Field: "spec.containers[*].resources.requests", Remedy: "request less, or use another node",
	}
	if s.name == v1.ResourcePods {
		rejection.Field, rejection.Remedy = "spec.nodeName", "use another node, or raise maxPods of this one"
	}
	return rejection
}

// amount returns a resource in the kubelet's units.
func amount(name v1.ResourceName, list v1.ResourceList) int64 {
	quantity := list[name]
	if name == v1.ResourceCPU {
		return quantity.MilliValue()
	}
	return quantity.Value()
}

// request returns what the pod requests of a resource in the kubelet's units.
func request(pod *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return amount(name, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
}

// resourceOrder returns the names in the order in which they are checked.
func resourceOrder(list v1.ResourceList) []v1.ResourceName {
	order := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	var names []v1.ResourceName
	for name := range list {
		names = append(names, name)
	}
	rank := func(name v1.ResourceName) int {
		if i := slices.Index(order, name); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortFunc(names, func(a, b v1.ResourceName) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	return names
}

// isExtendedResource reports whether the resource is not defined by Kubernetes.
func isExtendedResource(name v1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// checkAffinity rejects a pod whose nodeSelector or required affinity does not match the node (ADM-10).
func checkAffinity(pod *v1.Pod, node Node, _ []*v1.Pod) *Rejection {
	if node.Object == nil {
		return nil
	}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node.Object); err == nil && matches {
		return nil
	}
	return &Rejection{
		Reason: reasonNodeAffinity, Message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		Field: "spec.nodeSelector, spec.affinity.nodeAffinity", Remedy: "change them, or label the node",
	}
}

func checkName(pod *v1.Pod, node Node, _ []*v1.Pod) *Rejection { // ADM-13
	if node.Object == nil || pod.Spec.NodeName == "" || pod.Spec.NodeName == node.Object.Name {
		return nil
	}
	return &Rejection{
		Reason: reasonNodeName, Message: "Predicate NodeName failed: node(s) didn't match the requested node name",
		Field: "spec.nodeName", Remedy: "use " + node.Object.Name + ", or remove the field",
	}
}

// hostPort is a port of the node that a pod uses.
type hostPort struct {
	protocol v1.Protocol
	ip       string
	port     int32
}

// anyAddress is the host IP of ports without one.
const anyAddress = "0.0.0.0"

// checkPorts rejects a pod that needs a host port of another one (ADM-14).
func checkPorts(pod *v1.Pod, _ Node, others []*v1.Pod) *Rejection {
	wanted := hostPorts(pod)
	if len(wanted) == 0 {
		return nil
	}
	for _, other := range others {
		for _, taken := range hostPorts(other) {
			if slices.ContainsFunc(wanted, taken.conflicts) {
				return &Rejection{
					Reason: reasonNodePorts, Message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
					Field: "spec.containers[*].ports[*].hostPort", Remedy: fmt.Sprintf("pod %s/%s has %s port %d",
						other.Namespace, other.Name, taken.protocol, taken.port),
				}
			}
		}
	}
	return nil
}

func (p hostPort) conflicts(other hostPort) bool {
	return p.protocol == other.protocol && p.port == other.port && (p.ip == other.ip || p.ip == anyAddress || other.ip == anyAddress)
}

// hostPorts returns the ports of regular containers and sidecars.
func hostPorts(pod *v1.Pod) (ports []hostPort) {
	add := func(container *v1.Container) {
		for _, port := range container.Ports {
			if port.HostPort > 0 {
				ports = append(ports, hostPort{cmp.Or(port.Protocol, v1.ProtocolTCP), cmp.Or(port.HostIP, anyAddress), port.HostPort})
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if restart.IsSidecar(&pod.Spec.InitContainers[i]) {
			add(&pod.Spec.InitContainers[i])
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return ports
}

// checkTaints rejects a pod that does not tolerate a NoExecute taint of the node. Static pods tolerate all (ADM-15).
func checkTaints(pod *v1.Pod, node Node, _ []*v1.Pod) *Rejection {
	if node.Object == nil || podid.IsStatic(pod) {
		return nil
	}
	for _, taint := range node.Object.Spec.Taints {
		isTolerated := func(toleration v1.Toleration) bool { return tolerates(toleration, taint) }
		if taint.Effect == v1.TaintEffectNoExecute && !slices.ContainsFunc(pod.Spec.Tolerations, isTolerated) {
			return &Rejection{
				Reason: reasonTaintToleration, Message: "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
				Field: "spec.tolerations", Remedy: fmt.Sprintf("tolerate %s:%s, or use another node", taint.Key, taint.Effect),
			}
		}
	}
	return nil
}

func tolerates(toleration v1.Toleration, taint v1.Taint) bool {
	if toleration.Effect != "" && toleration.Effect != taint.Effect || toleration.Key != "" && toleration.Key != taint.Key {
		return false
	}
	switch toleration.Operator {
	case v1.TolerationOpExists:
		return true
	case v1.TolerationOpLt, v1.TolerationOpGt:
		limit, err := strconv.ParseInt(toleration.Value, 10, 64)
		value, valueErr := strconv.ParseInt(taint.Value, 10, 64)
		isLess := value < limit
		return err == nil && valueErr == nil && value != limit && isLess == (toleration.Operator == v1.TolerationOpLt)
	default: // Equal
		return toleration.Value == taint.Value
	}
}
