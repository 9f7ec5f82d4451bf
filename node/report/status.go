package report

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// StatusInput is what a Node's status is made of.
type StatusInput struct {
	Machine MachineInfo
	// Before is what the object says now; nil if there is none.
	Before    *v1.NodeStatus
	Pressures Pressures
	// NotReady says why the node cannot run pods; empty: it can.
	NotReady string
	// MaxPods is how many pods the node takes.
	MaxPods int64
	// Reserved is what pods do not get of the machine.
	Reserved v1.ResourceList
	// Port is where the agent serves; 0: nowhere.
	Port int32
	Now  time.Time
}

// Status is all that the agent has to say, and of what others own only what shares a list with it: addresses.
func Status(in StatusInput) *v1.NodeStatus {
	before := in.Before
	if before == nil {
		before = &v1.NodeStatus{}
	}
	status := &v1.NodeStatus{
		NodeInfo:        in.Machine.System,
		Capacity:        capacity(in.Machine, in.MaxPods),
		Addresses:       addresses(in.Machine, before.Addresses),
		DaemonEndpoints: v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: in.Port}},
	}
	status.Allocatable = allocatable(status.Capacity, in.Reserved)
	for _, c := range verdicts(in.Pressures, in.NotReady) {
		status.Conditions = append(status.Conditions, stamp(c, conditionOf(before.Conditions, c.Type), in.Now))
	}
	return status
}

func capacity(machine MachineInfo, maxPods int64) v1.ResourceList {
	list := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(machine.CPUs, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(machine.Memory.Total, resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
	if machine.Storage.Total > 0 {
		list[v1.ResourceEphemeralStorage] = *resource.NewQuantity(machine.Storage.Total, resource.BinarySI)
	}
	return list
}

// allocatable is what is left for pods: neither what is reserved nor what is short before pressure is told.
func allocatable(capacity, reserved v1.ResourceList) v1.ResourceList {
	list := v1.ResourceList{}
	for name, total := range capacity {
		left := total.DeepCopy()
		left.Sub(reserved[name])
		switch name {
		case v1.ResourceMemory:
			left.Sub(*resource.NewQuantity(memoryReserve, resource.BinarySI))
		case v1.ResourceEphemeralStorage:
			left.Sub(*resource.NewQuantity(total.Value()/100*storagePercent, resource.BinarySI))
		}
		if left.Sign() < 0 {
			left = *resource.NewQuantity(0, total.Format)
		}
		list[name] = left
	}
	return list
}

// addresses are the machine's own, then those of kinds that only others tell, such as a cloud's.
func addresses(machine MachineInfo, before []v1.NodeAddress) []v1.NodeAddress {
	var list []v1.NodeAddress
	for _, ip := range machine.Addresses {
		list = append(list, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
	}
	list = append(list, v1.NodeAddress{Type: v1.NodeHostName, Address: machine.Hostname})
	for _, address := range before {
		if address.Type != v1.NodeInternalIP && address.Type != v1.NodeHostName {
			list = append(list, address)
		}
	}
	return list
}

// Changed reports whether the object would say something else, times aside.
func Changed(before, wanted *v1.NodeStatus) bool {
	return !SameSystem(before.NodeInfo, wanted.NodeInfo) ||
		before.DaemonEndpoints != wanted.DaemonEndpoints ||
		!slices.Equal(before.Addresses, wanted.Addresses) ||
		!includes(before.Capacity, wanted.Capacity) || !includes(before.Allocatable, wanted.Allocatable) ||
		slices.ContainsFunc(wanted.Conditions, func(c v1.NodeCondition) bool {
			told := conditionOf(before.Conditions, c.Type)
			return told == nil || told.Status != c.Status || told.Reason != c.Reason || told.Message != c.Message
		})
}

// SameSystem reports whether two reports speak of one machine, and of one agent on it. Swap space is not told here.
func SameSystem(a, b v1.NodeSystemInfo) bool {
	a.Swap, b.Swap = nil, nil
	return a == b
}

// includes reports whether the list has all of the other; resources that others tell do not matter.
func includes(list, other v1.ResourceList) bool {
	for name, wanted := range other {
		if told, known := list[name]; !known || told.Cmp(wanted) != 0 {
			return false
		}
	}
	return true
}
