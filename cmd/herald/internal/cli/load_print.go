package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/view"
)

// noSample stands for what was not measured yet, which is not 0; notRunning for a pod of which there is nothing to measure.
const (
	noSample   = "no sample yet"
	notRunning = "not running"
)

// formatLoad returns the load of the node with its level, such as "0.83 memory (busy for 4m)".
func formatLoad(load *view.NodeLoad, now time.Time) string {
	if load == nil || load.Saturation == nil && load.Since == nil {
		return noSample
	}
	level := ""
	if load.Since != nil {
		level = " (" + load.Level + " for " + age(load.Since.Time, now) + ")"
	}
	if load.Saturation == nil {
		return "no recent sample" + level
	}
	return strings.TrimSpace(fmt.Sprintf("%.2f %s", *load.Saturation, load.Culprit)) + level
}

const (
	// nearlyFull is the use of a file system from which it is named, soonFull the time until it is full.
	nearlyFull    = .80
	soonFullHours = 24
)

// formatFileSystems names the file systems that need attention. One that is used for several things is named once.
func formatFileSystems(load *view.NodeLoad) string {
	if load == nil {
		return ""
	}
	var parts []string
	for _, fileSystem := range mergeFileSystems(load.FileSystems) {
		var problems []string
		if use := fileSystem.Use; use != nil && *use >= nearlyFull {
			problems = append(problems, formatShare(use)+" full")
		}
		if use := fileSystem.InodeUse; use != nil && *use >= nearlyFull {
			problems = append(problems, formatShare(use)+" of inodes used")
		}
		if hours := fileSystem.HoursToFull; hours != nil && *hours < soonFullHours {
			problems = append(problems, "full in "+formatHours(hours))
		}
		if fileSystem.ReadOnly {
			problems = append(problems, "read-only")
		}
		if len(problems) > 0 {
			parts = append(parts, fileSystem.Name+" "+strings.Join(problems, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

// mergeFileSystems returns each file system once, with all its names.
func mergeFileSystems(fileSystems []view.FileSystemLoad) []view.FileSystemLoad {
	var merged []view.FileSystemLoad
	for i := range fileSystems {
		same := slices.IndexFunc(merged, func(f view.FileSystemLoad) bool { return isSameFileSystem(&f, &fileSystems[i]) })
		if same < 0 {
			merged = append(merged, fileSystems[i])
		} else {
			merged[same].Name += "+" + fileSystems[i].Name
		}
	}
	return merged
}

// isSameFileSystem reports whether two entries have the same numbers: they are two uses of one file system.
func isSameFileSystem(a, b *view.FileSystemLoad) bool {
	equal := func(a, b *int64) bool { return a != nil && b != nil && *a == *b }
	return equal(a.CapacityBytes, b.CapacityBytes) && equal(a.UsedBytes, b.UsedBytes) && equal(a.AvailableBytes, b.AvailableBytes)
}

// The following return "-" for what is not known.

const notKnown = "-"

func formatShare(share *float64) string {
	if share == nil {
		return notKnown
	}
	return fmt.Sprintf("%.0f%%", *share*100)
}

func formatHours(hours *float64) string {
	switch {
	case hours == nil:
		return notKnown
	case *hours < 1:
		return fmt.Sprintf("%.0fm", *hours*60)
	case *hours < 48:
		return fmt.Sprintf("%.1fh", *hours)
	case *hours < 365*24:
		return fmt.Sprintf("%.0fd", *hours/24)
	default:
		return "over a year"
	}
}

func formatBytes(bytes *int64) string {
	if bytes == nil {
		return notKnown
	}
	return formatMebibytes(float64(*bytes))
}

// formatMebibytes returns bytes in the unit of 'kubectl top'.
func formatMebibytes(bytes float64) string { return fmt.Sprintf("%dMi", int64(bytes)>>20) }

// formatMillicores returns cores in the unit of 'kubectl top'.
func formatMillicores(cores float64) string { return fmt.Sprintf("%.0fm", cores*1000) }

// formatRate returns bytes per second.
func formatRate(bytes float64) string {
	units := []string{"B/s", "kB/s", "MB/s", "GB/s"}
	unit := 0
	for bytes >= 1000 && unit < len(units)-1 {
		bytes, unit = bytes/1000, unit+1
	}
	if unit == 0 || bytes >= 100 {
		return fmt.Sprintf("%.0f %s", bytes, units[unit])
	}
	return fmt.Sprintf("%.1f %s", bytes, units[unit])
}

func formatSome(pressure *view.Pressure) string {
	if pressure == nil {
		return notKnown
	}
	return formatShare(pressure.Some)
}
