package browser_test

import "fmt"

// pod returns the manifest of a pod with one container.
func pod(name, command, probe string) string {
	if probe != "" {
		probe = fmt.Sprintf("readinessProbe: {exec: {command: %s}, periodSeconds: 1, timeoutSeconds: 30}, ", probe)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: host, %scommand: %s}
`, name, probe, command)
}

var shop = map[string]string{
	"web":  pod("web", `[sh, -c, "while :; do sleep 1; done"]`, `["true"]`),
	"cart": pod("cart", `[sh, -c, "echo '<img src=x onerror=alert(1)> open /data: no such file'; exit 3"]`, ""),
	"slow": pod("slow", `[sleep, "100000"]`, `[sh, -c, "echo warming up; exit 1"]`),
}
