package cgroup

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Host is what the machine offers. The zero Host is a machine with version 1, without huge pages and swap accounting.
type Host struct {
	// V2 is set if all controllers are in the unified hierarchy.
	V2 bool
	// SwapController is set if swap can be limited.
	SwapController bool
	// HugePageSizes are the page sizes in bytes, ascending.
	HugePageSizes []int64
}

// Setting is the value of one file of a cgroup.
type Setting struct {
	Controller string
	File       string
	Value      string
}

// Controllers are those that pods need (CGR-6).
var Controllers = []string{"cpu", "cpuset", "memory", "hugetlb", "pids"}

// Settings returns the files to write, in order (CGR-17). Values that were not computed are not written (CGR-18).
func (r Resources) Settings(host Host) []Setting {
	var settings []Setting
	add := func(controller, file string, value any) {
		settings = append(settings, Setting{Controller: controller, File: file, Value: fmt.Sprint(value)})
	}
	if host.V2 {
		r.addV2(add)
	} else {
		r.addV1(add)
	}
	if r.PIDs != nil {
		add("pids", "pids.max", *r.PIDs)
	}
	if r.CPUs != "" {
		add("cpuset", "cpuset.cpus", r.CPUs)
	}
	limits := map[int64]int64{}
	for _, size := range host.HugePageSizes {
		limits[size] = 0
	}
	maps.Copy(limits, r.HugePages)
	suffix := ".limit_in_bytes"
	if host.V2 {
		suffix = ".max"
	}
	for _, size := range slices.Sorted(maps.Keys(limits)) {
		add("hugetlb", "hugetlb."+HugePageSizeName(size)+suffix, limits[size])
	}
	return settings
}

func (r Resources) addV1(add func(controller, file string, value any)) {
	if r.CPUShares != nil {
		add("cpu", "cpu.shares", *r.CPUShares)
	}
	if r.CPUQuota != nil {
		add("cpu", "cpu.cfs_period_us", QuotaPeriod)
		if *r.CPUQuota != 0 {
			add("cpu", "cpu.cfs_quota_us", *r.CPUQuota)
		}
	}
	if r.Memory != nil && *r.Memory != 0 {
		add("memory", "memory.limit_in_bytes", *r.Memory)
	}
}

func (r Resources) addV2(add func(controller, file string, value any)) {
	if r.CPUShares != nil {
		add("cpu", "cpu.weight", CPUWeight(*r.CPUShares))
	}
	if r.CPUQuota != nil {
		quota := "max"
		if *r.CPUQuota > 0 {
			quota = strconv.FormatInt(*r.CPUQuota, 10)
		}
		add("cpu", "cpu.max", fmt.Sprint(quota, " ", QuotaPeriod))
	}
	if r.Memory != nil && *r.Memory != 0 {
		add("memory", "memory.max", *r.Memory)
	}
}

// IsApplied reports whether current, the content of the file, is this value. The kernel rounds limits in bytes down to
// pages.
func (s Setting) IsApplied(current string, pageSize int64) bool {
	current = strings.TrimSpace(current)
	if current == s.Value {
		return true
	}
	if s.Controller != "memory" && s.Controller != "hugetlb" {
		return false
	}
	want, err := strconv.ParseInt(s.Value, 10, 64)
	return err == nil && current == strconv.FormatInt(want/pageSize*pageSize, 10)
}

// HugePageSizeName returns the kernel's name for a page size, such as 2MB.
func HugePageSizeName(size int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	unit := 0
	for size > 0 && size%1024 == 0 && unit < len(units)-1 {
		size /= 1024
		unit++
	}
	return strconv.FormatInt(size, 10) + units[unit]
}

// ParseResources returns the CPU and memory values of a cgroup from its files. read returns the content of a file, and false if
// there is none. A limit that is not set is -1; a value that cannot be read is nil.
func ParseResources(host Host, read func(controller, file string) (string, bool)) Resources {
	number := func(controller, file string) *int64 {
		content, found := read(controller, file)
		if !found {
			return nil
		}
		return parseLimit(strings.TrimSpace(content))
	}
	if !host.V2 {
		result := Resources{
			CPUShares: number("cpu", "cpu.shares"), CPUQuota: number("cpu", "cpu.cfs_quota_us"), Memory: number("memory", "memory.limit_in_bytes"),
		}
		if result.Memory != nil && *result.Memory >= unlimitedMemory {
			result.Memory = new(int64(unlimited))
		}
		return result
	}
	result := Resources{Memory: number("memory", "memory.max")}
	if weight := number("cpu", "cpu.weight"); weight != nil {
		result.CPUShares = new(sharesOfWeight(*weight))
	}
	if content, found := read("cpu", "cpu.max"); found {
		quota, _, _ := strings.Cut(strings.TrimSpace(content), " ")
		result.CPUQuota = parseLimit(quota)
	}
	return result
}

const (
	unlimited = -1
	// unlimitedMemory is less than what version 1 reports if no limit is set, for every page size.
	unlimitedMemory = 1 << 62
)

func parseLimit(text string) *int64 {
	if text == "max" {
		return new(int64(unlimited))
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}
	return &value
}

// sharesOfWeight returns the least shares with this weight.
func sharesOfWeight(weight int64) int64 {
	return minShares + ((weight-1)*(maxShares-minShares)+9998)/9999
}

// Normalized returns r as ParseResources reads it from a cgroup that has these values, where that differs: several shares have
// the same weight.
func (r Resources) Normalized(host Host) Resources {
	if host.V2 && r.CPUShares != nil {
		r.CPUShares = new(sharesOfWeight(CPUWeight(*r.CPUShares)))
	}
	return r
}
