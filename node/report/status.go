package report

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/heraldnode/herald/eviction"
)

// MachineInfo describes the machine at one moment.
type MachineInfo struct {
	// Hostname is the name of the host in the cluster.
	Hostname string
	// Addresses are the machine's own, the primary one first.
	Addresses []netip.Addr
	// System has the IDs, kernel, operating system, architecture, and the versions of the runtime and the agent.
	System v1.NodeSystemInfo
	CPUs   int64
	// Memory and Storage are in bytes, PIDs in processes and threads.
	Memory, Storage, Inodes, PIDs Amount
	// HugePages are the bytes in preallocated huge pages, by page size.
	HugePages map[int64]int64
	// Logs is the file system of container logs. It is zero if it is not known.
	Logs FileSystem
	// ImageFS is the file system of images, ContainerFS that of the containers' own layers if it is another. They are zero if they
	// are not known.
	ImageFS, ContainerFS FileSystem
	// Images are the images to report. It is nil if they are not known: what the object has stays.
	Images []v1.ContainerImage
	// RuntimeHandlers are the handlers of the container runtime. It is nil if they are not known: what the object has stays.
	RuntimeHandlers []v1.NodeRuntimeHandler
	// Features are the features of the container runtime. It is nil if they are not known: what the object has stays.
	Features *v1.NodeFeatures
}

// FileSystem is the space of a file system. Storage is in bytes.
type FileSystem struct{ Storage, Inodes Amount }

// Amount is the total and available amount of a resource. A zero Total means that it is not known.
type Amount struct{ Total, Available int64 }

// HostIPs returns the addresses of pods on the host network: the primary address, and one of the other family.
func HostIPs(addresses []netip.Addr) []netip.Addr {
	var ips []netip.Addr
	for _, address := range addresses {
		if len(ips) == 0 || (len(ips) == 1 && ips[0].Is4() != address.Is4()) {
			ips = append(ips, address)
		}
	}
	return ips
}

// pressureTypes are the pressure conditions in the order in which they are reported. Ready follows them.
var pressureTypes = []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure}

// Observations returns the signals of eviction that the machine has. What is not known has none.
func Observations(machine MachineInfo) eviction.Observations {
	all := eviction.Observations{}
	for signal, amount := range map[eviction.Signal]Amount{
		eviction.MemoryAvailable: machine.Memory, eviction.NodeFSAvailable: machine.Storage, eviction.NodeFSInodesFree: machine.Inodes,
		eviction.ImageFSAvailable: machine.ImageFS.Storage, eviction.ImageFSInodesFree: machine.ImageFS.Inodes,
		eviction.ContainerFSAvailable: machine.ContainerFS.Storage, eviction.ContainerFSInodesFree: machine.ContainerFS.Inodes,
		eviction.LogFSAvailable: machine.Logs.Storage, eviction.LogFSInodesFree: machine.Logs.Inodes, eviction.PIDAvailable: machine.PIDs,
	} {
		if amount.Total > 0 {
			all[signal] = eviction.Observation{Available: amount.Available, Capacity: amount.Total}
		}
	}
	return all
}

func findCondition(conditions []v1.NodeCondition, conditionType v1.NodeConditionType) *v1.NodeCondition {
	for i := range conditions {
		if conditions[i].Type == conditionType {
			return &conditions[i]
		}
	}
	return nil
}

// StatusInput is the input of Status.
type StatusInput struct {
	Machine MachineInfo
	// Previous is the object's current status, or nil if there is no object.
	Previous *v1.NodeStatus
	// Pressures are the conditions of pressure that hold.
	Pressures []v1.NodeConditionType
	// Eviction determines what is kept free, and cannot be allocated.
	Eviction eviction.Policy
	// NotReady is why the node cannot run pods. Empty if it can.
	NotReady string
	// MaxPods is the pod capacity.
	MaxPods int64
	// Reserved is subtracted from the capacity to get the allocatable resources.
	Reserved v1.ResourceList
	// Port is the port of the agent's kubelet API, or 0.
	Port int32
	// Features are those of the agent's kubelet API, see node.Config.
	Features []string
	// Conditions are further ones. One with an empty status is to be removed, see StatusPatch. Those that the agent reports anyway are
	// ignored.
	Conditions []v1.NodeCondition
	Now        time.Time
}

// Status returns the status to report. It contains what the agent owns and, of what others own, only the addresses, which are
// in the same list.
func Status(in StatusInput) *v1.NodeStatus {
	previous := in.Previous
	if previous == nil {
		previous = &v1.NodeStatus{}
	}
	status := &v1.NodeStatus{
		NodeInfo:        in.Machine.System,
		Capacity:        capacity(in.Machine, in.MaxPods),
		Addresses:       mergeAddresses(in.Machine, previous.Addresses),
		DaemonEndpoints: v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: in.Port}},
		RuntimeHandlers: in.Machine.RuntimeHandlers,
		Features:        in.Machine.Features,
		Images:          in.Machine.Images, DeclaredFeatures: slices.Sorted(slices.Values(slices.Concat(in.Features, declaredFeatures))),
	}
	status.Allocatable = allocatable(status.Capacity, in.Reserved, &in.Eviction)
	all := conditions(in.Pressures, in.NotReady)
	for _, condition := range in.Conditions {
		if findCondition(all, condition.Type) == nil {
			all = append(all, condition)
		}
	}
	for _, condition := range all {
		status.Conditions = append(status.Conditions,
			withTimes(condition, findCondition(previous.Conditions, condition.Type), in.Now))
	}
	return status
}

// declaredFeatures are the features that the scheduler and the API server require of a node before they let pods use them (RES-9). Of
// those of the kubelet, the agent always has this one. Others depend on its server and its runtime.
var declaredFeatures = []string{"RestartAllContainersOnContainerExits"}

func capacity(machine MachineInfo, maxPods int64) v1.ResourceList {
	list := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(machine.CPUs, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(machine.Memory.Total, resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
	for size, total := range machine.HugePages {
		name := v1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String()
		list[v1.ResourceName(name)] = *resource.NewQuantity(total, resource.BinarySI)
	}
	if machine.Storage.Total > 0 {
		list[v1.ResourceEphemeralStorage] = *resource.NewQuantity(machine.Storage.Total, resource.BinarySI)
	}
	return list
}

// allocatable returns the capacity without what is reserved and without what is left when a pressure begins. Memory in huge
// pages cannot be used otherwise.
func allocatable(capacity, reserved v1.ResourceList, policy *eviction.Policy) v1.ResourceList {
	list, keptFree := v1.ResourceList{}, policy.KeptFree(capacity)
	for name, total := range capacity {
		left := total.DeepCopy()
		left.Sub(reserved[name])
		left.Sub(keptFree[name])
		if name == v1.ResourceMemory {
			left.Sub(*resource.NewQuantity(hugePages(capacity), resource.BinarySI))
		}
		if left.Sign() < 0 {
			left = *resource.NewQuantity(0, total.Format)
		}
		list[name] = left
	}
	return list
}

// CheckReserved returns an error if more is reserved than the machine has without what is left when a pressure begins (CGR-32).
// Resources without a reservation are not checked.
func CheckReserved(machine MachineInfo, reserved v1.ResourceList, policy *eviction.Policy) error {
	var errs []error
	total := capacity(machine, 0)
	keptFree := policy.KeptFree(total)
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		available, reservation, kept := total[name], reserved[name], keptFree[name]
		needed := reservation.DeepCopy()
		needed.Add(kept)
		if !reservation.IsZero() && needed.Cmp(available) > 0 {
			errs = append(errs, fmt.Errorf("%s: %s reserved and %s kept free are more than the machine's %s; reserve less",
				name, &reservation, &kept, &available))
		}
	}
	return errors.Join(errs...)
}

// hugePages returns the memory in huge pages of all sizes.
func hugePages(list v1.ResourceList) (total int64) {
	for name, quantity := range list {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			total += quantity.Value()
		}
	}
	return total
}

// ResetExtendedResources sets the extended resources of the previous status to zero in the desired status, unless it has them.
// They are left by an earlier agent, and no pod that needs them can run. They are not removed, as with the kubelet.
func ResetExtendedResources(previous, desired *v1.NodeStatus) {
	for _, lists := range [][2]v1.ResourceList{
		{previous.Capacity, desired.Capacity}, {previous.Allocatable, desired.Allocatable},
	} {
		for name, quantity := range lists[0] {
			if _, provided := lists[1][name]; !provided && isExtendedResource(name) {
				lists[1][name] = *resource.NewQuantity(0, quantity.Format)
			}
		}
	}
}

// isExtendedResource reports whether the resource is not defined by Kubernetes.
func isExtendedResource(name v1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// mergeAddresses returns the machine's own addresses, then those of types that only others set, such as a cloud's.
func mergeAddresses(machine MachineInfo, previous []v1.NodeAddress) []v1.NodeAddress {
	var merged []v1.NodeAddress
	for _, ip := range machine.Addresses {
		merged = append(merged, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
	}
	merged = append(merged, v1.NodeAddress{Type: v1.NodeHostName, Address: machine.Hostname})
	for _, address := range previous {
		if address.Type != v1.NodeInternalIP && address.Type != v1.NodeHostName {
			merged = append(merged, address)
		}
	}
	return merged
}

// conditionState is the state of a condition and the reason of the event that reports it.
type conditionState struct {
	status                 v1.ConditionStatus
	reason, message, event string
}

// conditions returns all conditions that the agent owns, Ready last.
func conditions(pressures []v1.NodeConditionType, notReady string) []v1.NodeCondition {
	var all []v1.NodeCondition
	for _, conditionType := range pressureTypes {
		all = append(all, pressureState(conditionType, slices.Contains(pressures, conditionType)).condition(conditionType))
	}
	return append(all, readyState(notReady).condition(v1.NodeReady))
}

func (s conditionState) condition(conditionType v1.NodeConditionType) v1.NodeCondition {
	return v1.NodeCondition{Type: conditionType, Status: s.status, Reason: s.reason, Message: s.message}
}

func pressureState(conditionType v1.NodeConditionType, hasPressure bool) conditionState {
	switch conditionType {
	case v1.NodeMemoryPressure:
		return choose(hasPressure,
			conditionState{v1.ConditionTrue, "KubeletHasInsufficientMemory", "the node is short of memory", "NodeHasInsufficientMemory"},
			conditionState{v1.ConditionFalse, "KubeletHasSufficientMemory", "the node has enough memory", "NodeHasSufficientMemory"})
	case v1.NodeDiskPressure:
		return choose(hasPressure,
			conditionState{v1.ConditionTrue, "KubeletHasDiskPressure", "the node is short of disk space or inodes", "NodeHasDiskPressure"},
			conditionState{v1.ConditionFalse, "KubeletHasNoDiskPressure", "the node has enough disk space", "NodeHasNoDiskPressure"})
	}
	return choose(hasPressure,
		conditionState{v1.ConditionTrue, "KubeletHasInsufficientPID", "the node is short of process IDs", "NodeHasInsufficientPID"},
		conditionState{v1.ConditionFalse, "KubeletHasSufficientPID", "the node has enough process IDs", "NodeHasSufficientPID"})
}

func readyState(notReady string) conditionState {
	if notReady != "" {
		return conditionState{v1.ConditionFalse, "KubeletNotReady", notReady, "NodeNotReady"}
	}
	return conditionState{v1.ConditionTrue, "KubeletReady", "herald is posting ready status", "NodeReady"}
}

func choose[T any](condition bool, ifTrue, ifFalse T) T {
	if condition {
		return ifTrue
	}
	return ifFalse
}

// withTimes sets the times of a condition. LastTransitionTime changes only with the status, and never moves backwards, even
// if the clock does (F14).
func withTimes(condition v1.NodeCondition, previous *v1.NodeCondition, now time.Time) v1.NodeCondition {
	condition.LastHeartbeatTime, condition.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	if previous == nil {
		return condition
	}
	isSame := previous.Status == condition.Status && !previous.LastTransitionTime.IsZero()
	if isSame || previous.LastTransitionTime.After(now) {
		condition.LastTransitionTime = previous.LastTransitionTime
	}
	return condition
}

// WithoutRemoved returns the status without the conditions that are to be removed.
func WithoutRemoved(status *v1.NodeStatus) *v1.NodeStatus {
	isRemoved := func(condition v1.NodeCondition) bool { return condition.Status == "" }
	if !slices.ContainsFunc(status.Conditions, isRemoved) {
		return status
	}
	left := *status
	left.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), isRemoved)
	return &left
}

// StatusChanged reports whether the desired status differs from the object's, apart from times and from what others own.
func StatusChanged(previous, desired *v1.NodeStatus) bool {
	return !SameSystem(previous.NodeInfo, desired.NodeInfo) ||
		previous.DaemonEndpoints != desired.DaemonEndpoints ||
		imagesChanged(previous, desired) || newFieldsChanged(previous, desired) ||
		!slices.Equal(previous.Addresses, desired.Addresses) ||
		runtimeChanged(previous, desired) ||
		!includes(previous.Capacity, desired.Capacity) || !includes(previous.Allocatable, desired.Allocatable) ||
		slices.ContainsFunc(desired.Conditions, func(condition v1.NodeCondition) bool {
			old := findCondition(previous.Conditions, condition.Type)
			if condition.Status == "" || old == nil {
				return (condition.Status == "") != (old == nil)
			}
			return old.Status != condition.Status || old.Reason != condition.Reason || old.Message != condition.Message
		})
}

// runtimeChanged reports whether what is known about the container runtime differs.
func runtimeChanged(previous, desired *v1.NodeStatus) bool {
	if desired.RuntimeHandlers != nil && !slices.EqualFunc(previous.RuntimeHandlers, desired.RuntimeHandlers, sameHandler) {
		return true
	}
	return desired.Features != nil && !reflect.DeepEqual(previous.Features, desired.Features)
}

// imagesChanged reports whether the images are known and differ.
func imagesChanged(previous, desired *v1.NodeStatus) bool {
	return desired.Images != nil && !slices.EqualFunc(previous.Images, desired.Images, func(a, b v1.ContainerImage) bool {
		return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
	})
}

// newFieldsChanged reports whether fields differ that older API servers drop. The first report of an agent has them anyway; a field
// that the object does not have since then would be reported in vain, again and again.
func newFieldsChanged(previous, desired *v1.NodeStatus) bool {
	swap, wanted := previous.NodeInfo.Swap, desired.NodeInfo.Swap
	return swap != nil && wanted != nil && !reflect.DeepEqual(swap, wanted) ||
		previous.DeclaredFeatures != nil && !slices.Equal(previous.DeclaredFeatures, desired.DeclaredFeatures)
}

func sameHandler(a, b v1.NodeRuntimeHandler) bool { return reflect.DeepEqual(a, b) }

// RuntimeVersion returns the version of the container runtime as the kubelet reports it: "v2.4.2" becomes "containerd://2.4.2", and
// what a distribution adds is left out. A version that is none is reported as it is.
func RuntimeVersion(name, reported string) string {
	parsed, err := version.ParseSemantic(reported)
	if err != nil {
		parsed, err = version.ParseGeneric(reported)
	}
	if err != nil {
		return name + "://" + reported
	}
	return name + "://" + parsed.String()
}

// SameSystem reports whether both describe the same machine and agent. Swap is ignored: it may change, and older API servers drop it.
func SameSystem(a, b v1.NodeSystemInfo) bool {
	a.Swap, b.Swap = nil, nil
	return a == b
}

// includes reports whether list contains all resources of other. It ignores resources that others report.
func includes(list, other v1.ResourceList) bool {
	for name, want := range other {
		if got, found := list[name]; !found || got.Cmp(want) != 0 {
			return false
		}
	}
	return true
}

// Event is an event about the node.
type Event struct{ Type, Reason, Message string }

// StatusEvents returns the events of a status change: a reboot and changed conditions.
func StatusEvents(nodeName string, previous, current *v1.NodeStatus) []Event {
	var events []Event
	if bootID := previous.NodeInfo.BootID; bootID != "" && bootID != current.NodeInfo.BootID {
		events = append(events, Event{
			v1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", nodeName, current.NodeInfo.BootID),
		})
	}
	for _, condition := range current.Conditions {
		old := findCondition(previous.Conditions, condition.Type)
		if reason := eventReason(condition); reason != "" && (old == nil || old.Status != condition.Status) {
			events = append(events, newStatusEvent(nodeName, reason))
		}
	}
	return events
}

// SchedulingEvents returns the event of a node that was cordoned or uncordoned.
func SchedulingEvents(previous, current *v1.Node) []Event {
	if previous.UID != current.UID || previous.Spec.Unschedulable == current.Spec.Unschedulable {
		return nil
	}
	return []Event{newStatusEvent(current.Name, choose(current.Spec.Unschedulable, "NodeNotSchedulable", "NodeSchedulable"))}
}

func newStatusEvent(nodeName, reason string) Event {
	return Event{v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", nodeName, reason)}
}

// eventReason returns the reason of a condition's event, or "" for conditions that others own.
func eventReason(condition v1.NodeCondition) string {
	switch condition.Type {
	case v1.NodeReady:
		return choose(condition.Status == v1.ConditionTrue, "NodeReady", "NodeNotReady")
	case v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure:
		return pressureState(condition.Type, condition.Status == v1.ConditionTrue).event
	}
	return ""
}
