package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/heraldnode/herald/source/manifest"
)

// TestCFG9WhatLooksWrongButIsNotIsAccepted keeps the validation from growing stricter than the API server's.
func TestCFG9WhatLooksWrongButIsNotIsAccepted(t *testing.T) {
	for name, spec := range map[string]string{
		"init containers share a host port": container + "  initContainers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 80}]}, " +
			"{name: b, image: i, ports: [{containerPort: 1, hostPort: 80}]}]\n",
		"a host port on two addresses": "  containers: [{name: c, image: i, ports: [{containerPort: 1, hostPort: 80, hostIP: 127.0.0.1}, " +
			"{containerPort: 2, hostPort: 80, hostIP: '::1'}, {containerPort: 1, hostPort: 80, protocol: UDP}]}]\n",
		"a variable that is set twice":      "  containers: [{name: c, image: i, env: [{name: A, value: x}, {name: A, value: z}]}]\n",
		"a relative mount path":             "  volumes: [{name: v}]\n  containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: a}]}]\n",
		"a grace period of zero":            container + "  terminationGracePeriodSeconds: 0\n",
		"a hook that sleeps not at all":     "  containers: [{name: c, image: i, lifecycle: {preStop: {sleep: {seconds: 0}}}}]\n",
		"a resource of the node's own":      "  containers: [{name: c, image: i, resources: {limits: {kubernetes.io/thing: 1.5}}}]\n",
		"huge pages as a medium":            container + "  volumes: [{name: v, emptyDir: {medium: HugePages-2Mi}}, {name: w, emptyDir: {medium: HugePages}}]\n",
		"an image pull secret without name": container + "  imagePullSecrets: [{}]\n",
		"a preferred value that is no label": container + "  affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: " +
			"[{weight: 1, preference: {matchExpressions: [{key: a, operator: In, values: [x z]}]}}]}}\n",
		"a sysctl of the pod's own network": container + "  hostIPC: true\n  securityContext: {sysctls: [{name: net.core.somaxconn, value: '1'}]}\n",
		"a sysctl of no namespace":          container + "  hostIPC: true\n  hostNetwork: true\n  securityContext: {sysctls: [{name: kernel.pid_max, value: '1'}]}\n",
	} {
		t.Run(name, func(t *testing.T) { decodeOne(t, web+spec, fromFile) })
	}
}

func TestEverySignalOfLinuxIsTaken(t *testing.T) {
	signals := []string{"SIGTERM", "SIGKILL", "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+15", "SIGRTMAX-14", "SIGRTMAX-1", "SIGRTMAX"}
	for _, signal := range signals {
		decodeOne(t, web+"  os: {name: linux}\n  containers: [{name: c, image: i, lifecycle: {stopSignal: "+signal+"}}]\n", fromFile)
	}
}

func TestCFG9AnnotationsMayNotBeTooLargeTogether(t *testing.T) {
	var annotations strings.Builder
	for i := range 300 {
		fmt.Fprintf(&annotations, "    a%d: %s\n", i, strings.Repeat("x", 1000))
	}
	text := strings.Replace(web, "name: web\n", "name: web\n  annotations:\n"+annotations.String(), 1) + container
	_, err := manifest.Decode([]byte(text), fromFile)
	if want := "x.yaml:5: metadata.annotations: Too long: may not be more than 262144 bytes"; err == nil || err.Error() != want {
		t.Fatalf("says %v", err)
	}
}
