package manifest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/source/manifest"
)

// TestCFG9_CFG10_InvalidPods decodes the cases of testdata/invalid: a manifest, and after arrows its errors. -update rewrites the
// errors.
func TestCFG9_CFG10_InvalidPods(t *testing.T) {
	files, err := filepath.Glob("testdata/invalid/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d files, error %v", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var actual strings.Builder
			for i, testCase := range strings.Split(string(text), "## ")[1:] {
				if i > 0 {
					actual.WriteString("\n")
				}
				actual.WriteString(renderInvalid(t, testCase))
			}
			if *update {
				if err := os.WriteFile(path, []byte(actual.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), actual.String()); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

// renderInvalid decodes the manifest of one case, whose first line is the third of the input, and returns the case with the
// actual errors.
func renderInvalid(t *testing.T, testCase string) string {
	t.Helper()
	name, rest, _ := strings.Cut(testCase, "\n")
	text, _, _ := strings.Cut(rest, "=> ")
	text = strings.TrimRight(text, "\n") + "\n"
	pods, err := manifest.Decode([]byte("apiVersion: v1\nkind: Pod\n"+text), fromFile)
	if err == nil {
		t.Errorf("%s: got %d pods, want an error", name, len(pods))
		return ""
	}
	rendered := "## " + name + "\n" + text
	for line := range strings.SplitSeq(err.Error(), "\n") {
		rendered += "=> " + line + "\n"
	}
	return rendered
}

// TestCFG9_UnusualButValid makes sure that validation is not stricter than the API server's.
func TestCFG9_UnusualButValid(t *testing.T) {
	for name, spec := range map[string]string{
		"init containers share a host port": container + "  initContainers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 80}]}, " +
			"{name: b, image: i, ports: [{containerPort: 1, hostPort: 80}]}]\n",
		"host port on two addresses": "  containers: [{name: c, image: i, ports: [{containerPort: 1, hostPort: 80, hostIP: 127.0.0.1}, " +
			"{containerPort: 2, hostPort: 80, hostIP: '::1'}, {containerPort: 1, hostPort: 80, protocol: UDP}]}]\n",
		"variable set twice":             "  containers: [{name: c, image: i, env: [{name: A, value: x}, {name: A, value: z}]}]\n",
		"relative mount path":            "  volumes: [{name: v}]\n  containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: a}]}]\n",
		"grace period of zero":           container + "  terminationGracePeriodSeconds: 0\n",
		"sleep of zero seconds":          "  containers: [{name: c, image: i, lifecycle: {preStop: {sleep: {seconds: 0}}}}]\n",
		"kubernetes.io resource":         "  containers: [{name: c, image: i, resources: {limits: {kubernetes.io/thing: 1.5}}}]\n",
		"huge pages as a medium":         container + "  volumes: [{name: v, emptyDir: {medium: HugePages-2Mi}}, {name: w, emptyDir: {medium: HugePages}}]\n",
		"image pull secret without name": container + "  imagePullSecrets: [{}]\n",
		"preferred value that is no label": container + "  affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: " +
			"[{weight: 1, preference: {matchExpressions: [{key: a, operator: In, values: [x z]}]}}]}}\n",
		"sysctl of the pod network": container + "  hostIPC: true\n  securityContext: {sysctls: [{name: net.core.somaxconn, value: '1'}]}\n",
		"sysctl without namespace":  container + "  hostIPC: true\n  hostNetwork: true\n  securityContext: {sysctls: [{name: kernel.pid_max, value: '1'}]}\n",
	} {
		t.Run(name, func(t *testing.T) { decodeOne(t, web+spec, fromFile) })
	}
}

func TestDecode_StopSignals(t *testing.T) {
	signals := []string{"SIGTERM", "SIGKILL", "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+15", "SIGRTMAX-14", "SIGRTMAX-1", "SIGRTMAX"}
	for _, signal := range signals {
		decodeOne(t, web+"  os: {name: linux}\n  containers: [{name: c, image: i, lifecycle: {stopSignal: "+signal+"}}]\n", fromFile)
	}
}

func TestCFG9_AnnotationsTooLarge(t *testing.T) {
	var annotations strings.Builder
	for i := range 300 {
		fmt.Fprintf(&annotations, "    a%d: %s\n", i, strings.Repeat("x", 1000))
	}
	text := strings.Replace(web, "name: web\n", "name: web\n  annotations:\n"+annotations.String(), 1) + container
	_, err := manifest.Decode([]byte(text), fromFile)
	if want := "x.yaml:5: metadata.annotations: Too long: may not be more than 262144 bytes"; err == nil || err.Error() != want {
		t.Fatalf("got error %v, want %s", err, want)
	}
}
