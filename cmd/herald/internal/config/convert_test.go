package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/cmd/herald/internal/config"
)

const kubeletIdentity = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func TestConvert(t *testing.T) {
	// The output of kubeadm, and more.
	converted, ignored, err := config.Convert("/etc/kubelet/config.yaml", kubeletIdentity+`authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
eventRecordQPS: 0
fileCheckFrequency: 0s
failSwapOn: false
kubeReserved: {cpu: 200m, pid: "1000"}
systemReserved: {pid: "1000"}
logging:
  flushFrequency: 5
  options: {json: {infoBufferSize: ""}}
  verbosity: 2
maxPods: 0
nodeStatusReportFrequency: 1m
registerNode: false
registerWithTaints:
- {key: a, effect: NoSchedule, timeAdded: null}
- {key: b, effect: NoSchedule, timeAdded: "2026-01-01T00:00:00Z"}
staticPodPath: manifests
staticPodURL: http://example.com/pods
staticPodURLHeader: {a: [b]}
`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(identity+`authentication:
  webhook:
    enabled: true
  anonymous:
    enabled: false
staticPodPath: /etc/kubelet/manifests
cgroupDriver: systemd
clusterDNS:
  - 10.96.0.10
clusterDomain: cluster.local
registerNode: false
registerWithTaints:
  - key: a
    value: ""
    effect: NoSchedule
  - key: b
    value: ""
    effect: NoSchedule
nodeStatusReportFrequency: 1m0s
kubeReserved:
  cpu: 200m
eventRecordQPS: 0
logging:
  verbosity: 2
`, converted); diff != "" {
		t.Error(diff)
	}
	const file = "/etc/kubelet/config.yaml:"
	if diff := cmp.Diff([]string{
		file + "15: failSwapOn: ignored: Herald always runs with swap and with cgroup v1",
		file + "19: logging.flushFrequency: ignored: Herald does not buffer its log",
		file + "27: registerWithTaints[1].timeAdded: ignored: the API server sets it",
		file + "16: kubeReserved.pid: ignored: unsupported resource: must be cpu, memory or ephemeral-storage",
		file + "17: systemReserved.pid: ignored: unsupported resource: must be cpu, memory or ephemeral-storage",
		file + "29: staticPodURL: ignored: must be https: an attacker who can modify responses of http://example.com/pods in transit could gain root",
		file + "30: staticPodURLHeader: ignored: must not be set without staticPodURL",
	}, ignored); diff != "" {
		t.Error(diff)
	}
	output := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(output, []byte(converted), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(output, "", noFlags()); err != nil {
		t.Errorf("converted configuration is rejected: %v", err)
	}
}

func TestConvert_Errors(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"Herald configuration": {identity, `k.yaml:1: unexpected apiVersion "heraldnode.github.io/v1alpha1", kind "HeraldConfiguration": must have apiVersion: kubelet.config.k8s.io/v1beta1`},
		"other version":        {strings.Replace(kubeletIdentity, "v1beta1", "v1", 1), `kind "KubeletConfiguration": must have apiVersion: kubelet.config.k8s.io/v1beta1`},
		"empty":                {"", "k.yaml: file is empty: must have apiVersion: kubelet.config.k8s.io/v1beta1"},
		"invalid YAML":         {"a: [", "k.yaml:1: not valid YAML"},
		"invalid value":        {kubeletIdentity + "maxPods: lots\n", "k.yaml:3: maxPods: invalid value lots: must be an integer"},
		"duplicate field":      {kubeletIdentity + "maxPods: 1\nmaxPods: 2\n", "k.yaml:4: maxPods: already set in line 3"},
		"unknown field":        {kubeletIdentity + "frobnicate: \"\"\n", "k.yaml:3: frobnicate: KubeletConfiguration has no such field; remove it"},
		"typo":                 {kubeletIdentity + "maxPod: 3\n", `k.yaml:3: maxPod: KubeletConfiguration has no such field; did you mean "maxPods"?`},
		"typo of unsupported":  {kubeletIdentity + "evictionHrad: {}\n", `did you mean "evictionHard"?`},
		"typo in a list":       {kubeletIdentity + "registerWithTaints: [{key: a, efect: NoSchedule}]\n", "k.yaml:3: registerWithTaints[0].efect: KubeletConfiguration has no such field"},
		"two documents":        {kubeletIdentity + "---\n" + kubeletIdentity, "k.yaml:3: unexpected second document"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if converted, _, err := config.Convert("k.yaml", test.text); err == nil || !strings.Contains(err.Error(), test.want) || converted != "" {
				t.Errorf("got error %v, output %q, want %s", err, converted, test.want)
			}
		})
	}
}

// Converted configurations are accepted.
func FuzzConvert(f *testing.F) {
	f.Add("maxPods: 3\nlogging: {verbosity: -1, x: y}\nkubeReserved: {pid: a, cpu: b}\n")
	f.Add("registerWithTaints: [{key: a, b: c}]\nstaticPodURLHeader: &a {x: [b]}\nx: *a\ncontainerLogMaxSize: 1.5\n")
	f.Add("evictionHard: &a [*a]\n<<: {maxPods: 0}\n? [a]\n: b\nclusterDNS: []\nresolvConf: ''\n")
	f.Fuzz(func(t *testing.T, text string) {
		converted, _, err := config.Convert("/k.yaml", kubeletIdentity+text)
		if err != nil {
			return
		}
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, []byte(converted), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = config.Load(file, "", noFlags())
		if err != nil && !strings.HasPrefix(err.Error(), "no pod source") && !strings.Contains(err.Error(), "without a kubeconfig") {
			t.Errorf("got error %v for\n%s", err, converted)
		}
	})
}

func TestShow(t *testing.T) {
	c, err := load(t, []string{"--node-name=n1", "--data-dir=/d"}, identity+
		"staticPodURL: https://user:secret@example.com/pods?token=secret#secret\nstaticPodURLHeader: {Authorization: [secret]}\nnodeIP: fd00::1,10.0.0.1\n",
		identity+"maxPods: 3\nregisterNode: false\n")
	if err != nil {
		t.Fatal(err)
	}
	shown, err := c.Show()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"nodeName: n1", "listen: unix:///d/herald.sock", "staticPodURL: https://HIDDEN@example.com/pods?HIDDEN", "  Authorization:", "    - HIDDEN",
		"fileCheckFrequency: 20s", "nodeIP: fd00::1,10.0.0.1", "registerNode: false", "maxPods: 3", "containerLogMaxSize: 10Mi", "logging:", "  format: text",
	} {
		if !strings.Contains(shown, "\n"+line+"\n") {
			t.Errorf("got %s, want %q", shown, line)
		}
	}
	if strings.Contains(shown, "secret") || strings.Contains(shown, "podLogsDir") || c.StaticPodURLHeader["Authorization"][0] != "secret" {
		t.Errorf("shows a secret or an empty field, or changed the configuration:\n%s", shown)
	}
	again, err := load(t, nil, shown)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := again.Show(); err != nil || text != shown {
		t.Errorf("shown configuration differs after loading it: error %v\n%s", err, cmp.Diff(shown, text))
	}
}
