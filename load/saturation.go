package load

import "iter"

// Resource is a resource of a node that can be saturated.
type Resource string

// The resources.
const (
	CPU    Resource = "cpu"
	Memory Resource = "memory"
	Disk   Resource = "disk"
	PIDs   Resource = "pids"
)

// Signals are the inputs of the node's saturation. Shares and pressures are between 0 and 1; pressures are those of the last 60
// seconds ("some" of PSI).
type Signals struct {
	CPU, CPUPressure       Value
	Memory, MemoryPressure Value
	// Disk and Inodes are those of the fullest file system, HoursToFull that of the first to be full.
	Disk, Inodes, IOPressure, HoursToFull Value
	PIDs                                  Value
}

// Saturation is how close the node is to its limits: 0 is none, 1 is all of one resource.
type Saturation struct {
	// Value is the maximum over all resources, never a mean. It is unknown if no resource is known.
	Value Value
	// Culprit is the resource with that value. It is empty if Value is unknown or 0.
	Culprit Resource
	// Resources has the saturation of each resource.
	Resources ResourceValues
}

// ResourceValues has a value of each resource.
type ResourceValues struct{ CPU, Memory, Disk, PIDs Value }

// All yields the resources in a fixed order.
func (r ResourceValues) All() iter.Seq2[Resource, Value] {
	return func(yield func(Resource, Value) bool) {
		_ = yield(CPU, r.CPU) && yield(Memory, r.Memory) && yield(Disk, r.Disk) && yield(PIDs, r.PIDs)
	}
}

const (
	useFrom, useTo           = .70, 1
	pressureFrom, pressureTo = .05, .40
	diskFrom, diskTo         = .80, .95
	// cpuContended is the share of busy CPUs from which CPU pressure means contention. PSI alone cannot tell contention from a
	// limit that the author of a pod asked for.
	cpuContended = .80
	// urgentHours is the time until a file system is full from which it saturates the disk.
	urgentHours = 4
)

// Saturate returns the saturation of the node.
func Saturate(s Signals) Saturation {
	cpu := ramp(s.CPU, useFrom, useTo)
	if busy, known := s.CPU.Get(); known && busy > cpuContended {
		cpu = larger(cpu, ramp(s.CPUPressure, pressureFrom, pressureTo))
	}
	disk := larger(ramp(larger(s.Disk, s.Inodes), diskFrom, diskTo), ramp(s.IOPressure, pressureFrom, pressureTo))
	if hours, known := s.HoursToFull.Get(); known {
		disk = larger(disk, ramp(Known(urgentHours-hours), 0, urgentHours))
	}
	saturation := Saturation{Resources: ResourceValues{
		CPU: cpu, Disk: disk, PIDs: ramp(s.PIDs, useFrom, useTo),
		Memory: larger(ramp(s.Memory, useFrom, useTo), ramp(s.MemoryPressure, pressureFrom, pressureTo)),
	}}
	for name, value := range saturation.Resources.All() {
		if !value.known || (saturation.Value.known && value.number <= saturation.Value.number) {
			continue
		}
		saturation.Value = value
		if value.number > 0 {
			saturation.Culprit = name
		}
	}
	return saturation
}

// ramp is 0 up to from, 1 from to on, and linear between them.
func ramp(value Value, from, to float64) Value {
	if !value.known {
		return Value{}
	}
	return Known(min(max((value.number-from)/(to-from), 0), 1))
}
