package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Write makes benchmarks.md and benchmarks.svg in the folder. command is what a reader types to get numbers of their own.
func (r Report) Write(folder, command string) error {
	page := filepath.Join(folder, "benchmarks.md")
	if err := os.WriteFile(page, []byte(r.page(command)), 0o644); err != nil {
		return fmt.Errorf("write the benchmarks: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "benchmarks.svg"), []byte(plot(r.Curve)), 0o644); err != nil {
		return fmt.Errorf("draw the benchmarks: %w", err)
	}
	return nil
}

func (r Report) page(command string) string {
	var out strings.Builder
	fmt.Fprintf(&out, `# Beside the kubelet

Written by %[1]s on %[2]s; every number is from that one run. Both sides ran in one process, in turns, with the same pods,
the same statuses, the same client settings and the same API server (kube-apiserver and etcd, on the same machine); numbers
are medians. Where nothing else is said, the ratio is the kubelet's time divided by Herald's: above 1, Herald is faster.
Absolute times are this machine's. For the rows agent_*, each side was the whole program in a process of its own, with a
containerd of its own and the limits that its API client has by default, 50 requests a second and 100 at once.

Machine: %[3]s.

![Pods that turn Running at once, and the time until all are visible](benchmarks.svg)

%[4]s
`, "`"+command+"`", time.Now().UTC().Format(time.DateOnly), machine(), rowTable(r.Rows).markdown())
	if len(r.Workers) > 0 {
		fmt.Fprintf(&out, `## Requests in flight

What Herald's setting %s does: to the time until a burst is visible, by what is added to each request, and to the time until
a readiness change behind many others is visible.

%s`, "`status.Config.Workers`", workersTable(r.Workers).markdown())
	}
	return out.String()
}
