package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// machine says where the numbers come from, as far as Linux tells.
func machine() string {
	return fmt.Sprintf("%s, %d cores, Linux %s, %s", processor(), runtime.NumCPU(), kernel(), runtime.Version())
}

func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(info)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "of unknown version"
	}
	return strings.TrimSpace(string(release))
}
