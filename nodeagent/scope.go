package nodeagent

import (
	"os"

	"github.com/heraldnode/herald/process"
)

// processSlice is the systemd slice of the containers of RuntimeProcess.
const processSlice = "herald-pods.slice"

// scopeSlice returns processSlice if root runs this program as a service of systemd, and "" otherwise. Without scopes of
// their own, containers would share the memory limit and the restarts of the service.
func scopeSlice() string {
	content, err := os.ReadFile("/proc/self/cgroup")
	info, statErr := os.Lstat("/run/systemd/system") // as sd_booted(3)
	if err != nil || statErr != nil || !info.IsDir() || os.Geteuid() != 0 || process.ServiceUnit(string(content)) == "" {
		return ""
	}
	return processSlice
}
