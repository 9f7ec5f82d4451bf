package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/heraldnode/herald/cmd/herald/internal/config"
)

const kubelets = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func TestAConfigurationOfTheKubeletsIsConverted(t *testing.T) {
	// What kubeadm writes down, and more.
	converted, leftOut, err := config.Convert("/etc/kubelet/config.yaml", kubelets+`authentication:
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
frobnicate: 1
`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(identity+`staticPodPath: /etc/kubelet/manifests
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
	const of = "/etc/kubelet/config.yaml:"
	if diff := cmp.Diff([]string{
		of + "3: authentication: left out: Herald answers on this machine only, at its field listen",
		of + "15: failSwapOn: left out: Herald runs with swap and with cgroup v1 too",
		of + "19: logging.flushFrequency: left out: not known to Herald",
		of + "27: registerWithTaints[1].timeAdded: left out: not known to Herald",
		of + "31: frobnicate: left out: not known to Herald",
		of + "16: kubeReserved.pid: left out: nothing is kept back of that: want cpu, memory or ephemeral-storage",
		of + "17: systemReserved.pid: left out: nothing is kept back of that: want cpu, memory or ephemeral-storage",
		of + "29: staticPodURL: left out: want an https URL, or an http one on this machine: whoever can change pods on the way is root here",
		of + "30: staticPodURLHeader: left out: there is no staticPodURL to send it to",
	}, leftOut); diff != "" {
		t.Error(diff)
	}
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(converted), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(file, "", config.Bind(pflag.NewFlagSet("", pflag.ContinueOnError))); err != nil {
		t.Errorf("it would not be accepted: %v", err)
	}
}

func TestWhatIsNotTheKubeletsIsNotConverted(t *testing.T) {
	tests := map[string]struct{ text, says string }{
		"ours":            {identity, "k.yaml:1: is of apiVersion \"heraldnode.github.io/v1alpha1\", kind \"HeraldConfiguration\": begin it with apiVersion: kubelet.config.k8s.io/v1beta1"},
		"another version": {strings.Replace(kubelets, "v1beta1", "v1", 1), `kind "KubeletConfiguration": begin it with apiVersion: kubelet.config.k8s.io/v1beta1`},
		"nothing":         {"", "k.yaml: is empty: begin it with apiVersion: kubelet.config.k8s.io/v1beta1"},
		"no YAML":         {"a: [", "k.yaml:1: no YAML"},
		"a wrong value":   {kubelets + "maxPods: lots\n", "k.yaml:3: maxPods: is lots: want a whole number"},
		"twice":           {kubelets + "maxPods: 1\nmaxPods: 2\n", "k.yaml:4: maxPods: is set in line 3 already"},
		"two documents":   {kubelets + "---\n" + kubelets, "k.yaml:3: a second document begins here"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if converted, _, err := config.Convert("k.yaml", test.text); err == nil || !strings.Contains(err.Error(), test.says) || converted != "" {
				t.Errorf("says %v\nwant %s", err, test.says)
			}
		})
	}
}

func FuzzWhatIsConvertedIsAccepted(f *testing.F) {
	f.Add("maxPods: 3\nlogging: {verbosity: -1, x: y}\nkubeReserved: {pid: a, cpu: b}\n")
	f.Add("registerWithTaints: [{key: a, b: c}]\nstaticPodURLHeader: &a {x: [b]}\nx: *a\ncontainerLogMaxSize: 1.5\n")
	f.Add("evictionHard: &a [*a]\n<<: {maxPods: 0}\n? [a]\n: b\nclusterDNS: []\nresolvConf: ''\n")
	f.Fuzz(func(t *testing.T, text string) {
		converted, _, err := config.Convert("/k.yaml", kubelets+text)
		if err != nil {
			return
		}
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, []byte(converted), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = config.Load(file, "", config.Bind(pflag.NewFlagSet("", pflag.ContinueOnError)))
		if err != nil && !strings.HasPrefix(err.Error(), "nothing to run") {
			t.Errorf("%v\n%s", err, converted)
		}
	})
}

func TestWhatHoldsIsShownWithoutSecrets(t *testing.T) {
	c, err := load(t, []string{"--node-name=n1", "--data-dir=/d"}, identity+
		"staticPodURL: https://user:secret@example.com/pods?token=secret#secret\nstaticPodURLHeader: {Authorization: [secret]}\nnodeIP: 10.0.0.1\n",
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
		"fileCheckFrequency: 20s", "nodeIP: 10.0.0.1", "registerNode: false", "maxPods: 3", "containerLogMaxSize: 10Mi", "logging:", "  format: text",
	} {
		if !strings.Contains(shown, "\n"+line+"\n") {
			t.Errorf("%q is not in:\n%s", line, shown)
		}
	}
	if strings.Contains(shown, "secret") || strings.Contains(shown, "podLogsDir") || c.StaticPodURLHeader["Authorization"][0] != "secret" {
		t.Errorf("shows a secret, or what says nothing, or has changed:\n%s", shown)
	}
	again, err := load(t, nil, shown)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := again.Show(); err != nil || text != shown {
		t.Errorf("read again it is something else: %v\n%s", err, cmp.Diff(shown, text))
	}
}
