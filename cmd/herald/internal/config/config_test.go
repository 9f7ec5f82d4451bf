package config_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/auth"
	"github.com/heraldnode/herald/cmd/herald/internal/config"
	"github.com/heraldnode/herald/deed"
	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/imagegc"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/notify"
)

const identity = "apiVersion: heraldnode.github.io/v1alpha1\nkind: HeraldConfiguration\n"

func noFlags() *config.Flags { return config.Bind(pflag.NewFlagSet("", pflag.ContinueOnError)) }

// load writes the texts to a file and up to two drop-ins and loads them with the flags.
func load(t *testing.T, flags []string, texts ...string) (config.Config, error) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.MkdirAll("d/more", 0o700); err != nil {
		t.Fatal(err)
	}
	file := ""
	for i, text := range texts {
		name := "c.yaml"
		if i > 0 {
			name = filepath.Join("d", []string{"", "10.conf", "more/20.conf"}[i])
		} else {
			file = name
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	bound := config.Bind(set)
	if err := set.Parse(flags); err != nil {
		t.Fatal(err)
	}
	return config.Load(file, "d", bound)
}

// Every error names file, line and field and says what is expected. None contains a secret.
func TestLoad_Errors(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"typo":                      {identity + "staticPodPaht: /x\n", `c.yaml:3: staticPodPaht: unknown field; did you mean "staticPodPath"?`},
		"wrong case":                {identity + "nodename: n1\n", `c.yaml:3: nodename: unknown field; did you mean "nodeName"?`},
		"name of a flag":            {identity + "manifests: /x\n", `c.yaml:3: manifests: unknown field; did you mean "staticPodPath"?`},
		"wrong level":               {identity + "verbosity: 3\n", `c.yaml:3: verbosity: unknown field; did you mean "logging.verbosity"?`},
		"kubelet field":             {identity + "failCgroupV1: true\n", "c.yaml:3: failCgroupV1: field of the kubelet that is not supported: Herald always runs with swap and with cgroup v1; remove it"},
		"CGR-31 reserved cgroup":    {identity + "systemReservedCgroup: /system\n", "c.yaml:3: systemReservedCgroup: field of the kubelet that is not supported: Herald enforces only the limits of pods; remove it"},
		"CGR-33 kernel settings":    {identity + "protectKernelDefaults: true\n", "c.yaml:3: protectKernelDefaults: field of the kubelet that is not supported: Herald does not change kernel settings; remove it"},
		"static CPU manager":        {identity + "cpuManagerPolicy: static\n", "c.yaml:3: cpuManagerPolicy: field of the kubelet that is not supported: Herald does not assign exclusive CPUs or memory; remove it"},
		"swap for pods":             {identity + "memorySwap: {swapBehavior: LimitedSwap}\n", "c.yaml:3: memorySwap: field of the kubelet that is not supported: containers do not use swap; remove it"},
		"no field":                  {identity + "frobnicate: {}\n", "c.yaml:3: frobnicate: unknown field; see 'herald help config' for all fields"},
		"nested typo":               {identity + "registerWithTaints:\n- key: a\n  effect: NoExecute\n  valu: b\n", `c.yaml:6: registerWithTaints[0].valu: unknown field; did you mean "registerWithTaints[].value"?`},
		"duplicate field":           {identity + "maxPods: 3\nmaxPods: 4\n", "c.yaml:4: maxPods: already set in line 3"},
		"duration without unit":     {identity + "fileCheckFrequency: 20\n", "c.yaml:3: fileCheckFrequency: invalid value 20: must be a duration, like 20s or 1m30s"},
		"word as int":               {identity + "maxPods: lots\n", "c.yaml:3: maxPods: invalid value lots: must be an integer"},
		"quoted int":                {identity + "maxPods: \"3\"\n", `c.yaml:3: maxPods: invalid value "3": must be an integer`},
		"number as string":          {identity + "nodeName: 5\n", `c.yaml:3: nodeName: invalid value 5: must be a string: write "5", with quotes`},
		"yes as bool":               {identity + "registerNode: yes\n", "c.yaml:3: registerNode: invalid value yes: must be true or false"},
		"invalid IP":                {identity + "clusterDNS: [x]\n", "c.yaml:3: clusterDNS[0]: invalid value x: must be an IP address, like 10.0.0.1"},
		"scalar as list":            {identity + "clusterDNS: 10.0.0.1\n", "c.yaml:3: clusterDNS: must be a list"},
		"list as map":               {identity + "nodeLabels: [a]\n", "c.yaml:3: nodeLabels: must be a mapping of names to values"},
		"scalar as struct":          {identity + "logging: json\n", "c.yaml:3: logging: must be a mapping"},
		"list as string":            {identity + "nodeName: [a]\n", "c.yaml:3: nodeName: must be a single value"},
		"invalid label":             {identity + "nodeLabels: {a: b c}\n", "c.yaml:3: nodeLabels: invalid label a=b c: "},
		"invalid taint effect":      {identity + "registerWithTaints: [{key: a, effect: Never}]\n", `c.yaml:3: registerWithTaints[0].effect: invalid value "Never": must be NoSchedule, PreferNoSchedule or NoExecute`},
		"taint without key":         {identity + "registerWithTaints: [{effect: NoExecute}]\n", "c.yaml:3: registerWithTaints[0]: invalid taint =: "},
		"invalid node name":         {identity + "nodeName: A_b\n", `c.yaml:3: nodeName: invalid value "A_b": `},
		"zero httpCheckFrequency":   {identity + "httpCheckFrequency: 0s\n", "c.yaml:3: httpCheckFrequency: invalid value 0s: must be greater than 0s"},
		"listen on all interfaces":  {identity + "listen: 0.0.0.0:80\n", `c.yaml:3: listen: "0.0.0.0:80": "0.0.0.0" is not a loopback address`},
		"insecure URL":              {identity + "staticPodURL: http://user:secret@example.com/x\n", "c.yaml:3: staticPodURL: must be https"},
		"URL of any local user":     {identity + "staticPodURL: http://localhost:8080/x\n", "c.yaml:3: staticPodURL: must be https"},
		"headers without URL":       {identity + "staticPodURLHeader: {a: [b]}\n", "c.yaml:3: staticPodURLHeader: must not be set without staticPodURL"},
		"certificate without key":   {identity + "staticPodURLCertFile: a\n", "c.yaml:3: staticPodURLCertFile: must be set together with staticPodURLKeyFile"},
		"path as endpoint":          {identity + "containerRuntimeEndpoint: /run/c.sock\n", `c.yaml:3: containerRuntimeEndpoint: invalid value "/run/c.sock": must be a socket, like unix:///run`},
		"endpoint with process":     {identity + "runtime: process\nimageServiceEndpoint: unix:///c.sock\n", "c.yaml:4: imageServiceEndpoint: must not be set with runtime: process"},
		"allowAPIPods with cri":     {identity + "allowAPIPods: true\n", "c.yaml:3: allowAPIPods: must not be set with runtime: cri"},
		"unknown runtime":           {identity + "runtime: docker\n", `c.yaml:3: runtime: invalid value "docker": must be cri or process`},
		"dataDir too long":          {identity + "runtime: process\nlisten: 127.0.0.1:0\ndataDir: /" + strings.Repeat("x", 95) + "\n", "c.yaml:5: dataDir: /" + strings.Repeat("x", 95) + "/process.sock must not exceed 107 bytes"},
		"zero kubeAPIQPS":           {identity + "kubeAPIQPS: 0\n", "c.yaml:3: kubeAPIQPS: invalid value 0: must be greater than 0, or -1 for no limit"},
		"zero kubeAPIBurst":         {identity + "kubeAPIBurst: 0\n", "c.yaml:3: kubeAPIBurst: invalid value 0: must be greater than 0"},
		"negative eventRecordQPS":   {identity + "eventRecordQPS: -1\n", "c.yaml:3: eventRecordQPS: invalid value -1: must be greater than 0, or 0 for no limit"},
		"zero eventBurst":           {identity + "eventBurst: 0\n", "c.yaml:3: eventBurst: invalid value 0: must be greater than 0"},
		"zero update frequency":     {identity + "nodeStatusUpdateFrequency: 0s\n", "c.yaml:3: nodeStatusUpdateFrequency: invalid value 0s: must be greater than 0s"},
		"negative report frequency": {identity + "nodeStatusReportFrequency: -1s\n", "c.yaml:3: nodeStatusReportFrequency: invalid value -1s: must be greater than 0s"},
		"short lease":               {identity + "nodeLeaseDurationSeconds: 3\n", "c.yaml:3: nodeLeaseDurationSeconds: invalid value 3: must be at least 4"},
		"zero syncFrequency":        {identity + "syncFrequency: 0s\n", "c.yaml:3: syncFrequency: invalid value 0s: must be greater than 0s"},
		"zero runtime timeout":      {identity + "runtimeRequestTimeout: 0s\n", "c.yaml:3: runtimeRequestTimeout: invalid value 0s: must be greater than 0s"},
		"negative image pulls":      {identity + "maxParallelImagePulls: -1\n", "c.yaml:3: maxParallelImagePulls: invalid value -1: must be greater than 0, or 0 for no limit"},
		"unknown image policy":      {identity + "imagePullCredentialsVerificationPolicy: Sometimes\n", `c.yaml:3: imagePullCredentialsVerificationPolicy: invalid value "Sometimes": must be one of [NeverVerify`},
		"allowlist without policy":  {identity + "preloadedImagesVerificationAllowlist: [app]\n", "preloadedImagesVerificationAllowlist: must not be set with imagePullCredentialsVerificationPolicy: NeverVerifyPreloadedImages"},
		"allowlist with tag":        {identity + "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [app:1]\n", `preloadedImagesVerificationAllowlist[0]: invalid value "app:1": must be an image name without a tag`},
		"image threshold":           {identity + "imageGCHighThresholdPercent: 101\n", "c.yaml:3: imageGCHighThresholdPercent: invalid value 101: must be between 0 and 100"},
		"image thresholds":          {identity + "imageGCLowThresholdPercent: 85\n", "c.yaml:3: imageGCLowThresholdPercent: invalid value 85: must be less than imageGCHighThresholdPercent 85"},
		"image ages":                {identity + "imageMaximumGCAge: 1m\n", "c.yaml:3: imageMaximumGCAge: invalid value 1m0s: must be greater than imageMinimumGCAge 2m0s"},
		"invalid log size":          {identity + "containerLogMaxSize: 10MB\n", `c.yaml:3: containerLogMaxSize: invalid value "10MB": must be a number of bytes, like 10Mi`},
		"log size as int":           {identity + "containerLogMaxSize: 1000\n", `c.yaml:3: containerLogMaxSize: invalid value 1000: must be a string: write "1000"`},
		"fractional log size":       {identity + "containerLogMaxSize: 10m\n", `c.yaml:3: containerLogMaxSize: invalid value "10m": must be a number of bytes, like 10Mi`},
		"one log file":              {identity + "containerLogMaxFiles: 1\n", "c.yaml:3: containerLogMaxFiles: invalid value 1: must be at least 2"},
		"unknown cgroup driver":     {identity + "cgroupDriver: docker\n", `c.yaml:3: cgroupDriver: invalid value "docker": must be cgroupfs, systemd or empty`},
		"unknown enforcement":       {identity + "enforceNodeAllocatable: [pods, kube-reserved]\n", `c.yaml:3: enforceNodeAllocatable[1]: invalid value "kube-reserved": must be pods`},
		"process limit of 0":        {identity + "podPidsLimit: 0\n", `c.yaml:3: podPidsLimit: invalid value 0: must be greater than 0, or -1 for no limit`},
		"relative cgroup root":      {identity + "cgroupRoot: kubepods\n", `c.yaml:3: cgroupRoot: invalid value "kubepods": must be an absolute path`},
		"empty resolvConf":          {identity + "resolvConf: \"\"\n", "c.yaml:3: resolvConf: must not be empty; use /dev/null for no name servers"},
		"all sysctls":               {identity + "allowedUnsafeSysctls:\n- net.core.*\n- \"*\"\n", `c.yaml:5: allowedUnsafeSysctls[1]: invalid value "*": must be a sysctl`},
		"reserved pid":              {identity + "kubeReserved:\n  cpu: 100m\n  pid: \"100\"\n", "c.yaml:5: kubeReserved.pid: unsupported resource: must be cpu, memory or ephemeral-storage"},
		"negative reservation":      {identity + "systemReserved: {memory: -1Gi}\n", `c.yaml:3: systemReserved.memory: invalid value "-1Gi": must be a quantity, like 500m or 1Gi`},
		"EVI-4, unknown signal":     {identity + "evictionHard:\n  nodefs.available: 5%\n  memory.free: 1Gi\n", "c.yaml:5: evictionHard.memory.free: unknown signal: must be one of memory.available"},
		"EVI-4, threshold":          {identity + "evictionHard: {memory.available: lots}\n", `c.yaml:3: evictionHard.memory.available: invalid value "lots": must be a quantity like 100Mi, or a percentage like 10%`},
		"EVI-4, no grace period":    {identity + "evictionSoft: {memory.available: 1Gi}\n", "c.yaml:3: evictionSoft.memory.available: has no grace period in evictionSoftGracePeriod"},
		"EVI-12, period":            {identity + "evictionPressureTransitionPeriod: -1s\n", "c.yaml:3: evictionPressureTransitionPeriod: invalid value -1s: must not be negative"},
		"maxImages":                 {identity + "nodeStatusMaxImages: -2\n", "c.yaml:3: nodeStatusMaxImages: invalid value -2: must be at least -1"},
		"negative maxPods":          {identity + "maxPods: -1\n", "c.yaml:3: maxPods: invalid value -1: must be greater than 0"},
		"unknown log format":        {identity + "logging: {format: xml}\n", `c.yaml:3: logging.format: invalid value "xml": must be text or json`},
		"negative verbosity":        {identity + "logging: {verbosity: -1}\n", "c.yaml:3: logging.verbosity: invalid value -1: must not be negative"},
		"alertmanager URL":          {identity + "alerting:\n  alertmanagers: [{url: am}]\n", `c.yaml:4: alerting.alertmanagers[0].url: invalid value "am": must be an http or https URL`},
		"insecure webhook":          {identity + "alerting: {webhooks: [{name: a, url: 'http://10.0.0.1'}]}\n", `c.yaml:3: alerting.webhooks[0].url: invalid value "http://10.0.0.1": must be an https URL, or http with a loopback address`},
		"duplicate webhook":         {identity + "alerting:\n  webhooks:\n  - {name: a, url: 'https://a'}\n  - {name: a, url: 'https://b'}\n", `c.yaml:6: alerting.webhooks[1].name: duplicate name "a"`},
		"webhook without key":       {identity + "alerting: {webhooks: [{name: a, url: 'https://a', certFile: c}]}\n", `c.yaml:3: alerting.webhooks[0]: certFile and keyFile must be set together`},
		"external URL":              {identity + "alerting: {externalURL: n1}\n", `c.yaml:3: alerting.externalURL: invalid value "n1"`},
		"program without path":      {identity + "alerting: {programs: [{name: a}]}\n", `alerting.programs[0].path: invalid value "": must be an absolute path`},
		"duplicate program":         {identity + "alerting: {programs: [{name: a, path: /a}, {name: a, path: /b}]}\n", `alerting.programs[1].name: duplicate name "a"`},
		"typo in alerting":          {identity + "alerting: {rulesFiles: [a]}\n", `c.yaml:3: alerting.rulesFiles: unknown field; did you mean "alerting.ruleFiles"?`},
		"missing kubeconfig":        {identity + "kubeconfig: nowhere\n", "c.yaml:3: kubeconfig: stat "},
		"directory as kubeconfig":   {identity + "kubeconfig: /\n", "c.yaml:3: kubeconfig: / is not a regular file"},
		"kubelet configuration":     {"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n", "c.yaml:1: kind: this is a kubelet configuration: convert it with 'herald config convert c.yaml'"},
		"tab":                       {identity + "nodeName: a\n\tmaxPods: 3\n", "c.yaml:4: not valid YAML: indented with a tab: use spaces"},
		"tab after spaces":          {identity + "logging:\n \tformat: json\n", "c.yaml:4: not valid YAML: indented with a tab: use spaces"},
		"invalid token":             {identity + "a: @b\n", "c.yaml:3: not valid YAML: found character"},
		"duplicate kind":            {identity + "kind: HeraldConfiguration\n", "c.yaml:3: kind: already set in line 2"},
		"empty list item":           {identity + "clusterDNS: [10.0.0.1, ~]\n", "c.yaml:3: clusterDNS[1]: must not be empty"},
		"empty taint":               {identity + "registerWithTaints:\n-\n", "c.yaml:4: registerWithTaints[0]: must not be empty"},
		"duplicate taint":           {identity + "registerWithTaints:\n- {key: a, effect: NoExecute}\n- {key: a, value: b, effect: NoExecute}\n", "c.yaml:5: registerWithTaints[1]: duplicate taint: key a with effect NoExecute"},
		"int out of range":          {identity + "nodeLeaseDurationSeconds: 999999999999\n", "c.yaml:3: nodeLeaseDurationSeconds: invalid value 999999999999: must be between -2147483648 and 2147483647"},
		"unspecified node IP":       {identity + "nodeIP: 0.0.0.0\n", "c.yaml:3: nodeIP: invalid value 0.0.0.0: must be a unicast address without a zone"},
		"node IPs of one family":    {identity + "nodeIP: 10.0.0.1,10.0.0.2\n", "c.yaml:3: nodeIP: invalid value 10.0.0.1,10.0.0.2: must be one address, or one of each family"},
		"node IP with zone":         {identity + "nodeIP: fe80::1%eth0\n", "c.yaml:3: nodeIP: invalid value fe80::1%eth0: must"},
		"invalid header name":       {identity + "staticPodURL: https://a/b\nstaticPodURLHeader:\n  a b: [secret]\n", "c.yaml:5: staticPodURLHeader.a b: invalid header name"},
		"invalid header value":      {identity + "staticPodURL: https://a/b\nstaticPodURLHeader: {a: [\"secret\\nx: y\"]}\n", "c.yaml:4: staticPodURLHeader.a: invalid header value"},
		"invalid port":              {identity + "listen: 127.0.0.1:99999\n", `c.yaml:3: listen: "127.0.0.1:99999": the port must be between 0 and 65535`},
		"directory as socket":       {identity + "listen: unix:///run/\n", `c.yaml:3: listen: "unix:///run/": must be the path of a socket, not of a directory`},
		"other kind":                {"apiVersion: v1\nkind: Pod\n", `c.yaml:1: unexpected apiVersion "v1", kind "Pod": must have apiVersion: heraldnode.github.io/v1alpha1`},
		"list as document":          {"- a\n", "c.yaml:1: must be a mapping with apiVersion: "},
		"empty file":                {"", "c.yaml: file is empty: must have apiVersion: "},
		"invalid YAML":              {identity + "a: [\n", "c.yaml:3: not valid YAML: "},
		"two documents":             {identity + "---\nmaxPods: 3\n", "c.yaml:3: unexpected second document"},
		"invalid second document":   {identity + "---\na: [\n", "c.yaml:4: not valid YAML: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := load(t, nil, test.text); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %s", err, test.want)
			} else if strings.Contains(err.Error(), "secret") {
				t.Errorf("error contains a secret: %v", err)
			}
		})
	}
}

func TestLoad_AllErrorsAtOnce(t *testing.T) {
	_, err := load(t, nil, identity+"a: 1\nmaxPods: x\n", identity+"b: 1\n")
	if err == nil || strings.Count(err.Error(), "\n") != 2 || !strings.Contains(err.Error(), "d/10.conf:3: b: unknown field") {
		t.Errorf("got error %v, want three lines", err)
	}
}

func TestLoad_Precedence(t *testing.T) {
	file := identity + `
nodeName: file
staticPodPath: pods
maxPods: 1
kubeAPIQPS: 1
clusterDNS: [10.0.0.1, 10.0.0.2]
nodeLabels: {a: file, b: file}
logging: {format: json, verbosity: 1}
`
	first := identity + "nodeName: first\nmaxPods: 2\nkubeAPIQPS: 2\nclusterDNS: [10.0.0.3]\nnodeLabels: {b: first}\nlogging: {verbosity: 2}\n"
	second := identity + "nodeName: second\nmaxPods: 3\nstaticPodPath:\npodLogsDir: logs\n"
	got, err := load(t, []string{"--node-name=flag", "--data-dir=data", "-v4"}, file, first, second)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.NodeName, want.StaticPodPath, want.MaxPods, want.KubeAPIQPS = "flag", filepath.Join(dir, "pods"), 3, 2
	want.DataDir, want.PodLogsDir = filepath.Join(dir, "data"), filepath.Join(dir, "d", "more", "logs")
	want.ClusterDNS = []netip.Addr{netip.MustParseAddr("10.0.0.3")}
	want.NodeLabels = map[string]string{"a": "file", "b": "first"}
	want.Logging = config.Logging{Format: "json", Verbosity: 4}
	want.Alerting.RuleFiles = []string{filepath.Join(dir, "alerts.d")}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
	if address := got.ListenAddress(); address != "unix://"+filepath.Join(dir, "data", "herald.sock") {
		t.Errorf("got listen address %s, want herald.sock in the data directory", address)
	}
}

func TestLoad_InvalidFlag(t *testing.T) {
	if _, err := load(t, []string{"--runtime=docker"}, identity); err == nil || !strings.HasPrefix(err.Error(), "no pod source") ||
		!strings.Contains(err.Error(), `--runtime: invalid value "docker"`) {
		t.Errorf("got error %v, want one with --runtime", err)
	}
}

func TestLoad_DropInDirectory(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"10.yaml": "x", "20.conf.bak": "x", ".30.conf": "x", "..data/40.conf": "x", "50.conf": identity + "nodeName: five\nstaticPodPath: /x\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := config.Load("", dir, noFlags()); err != nil || got.NodeName != "five" {
		t.Errorf("got node name %q, error %v, want five", got.NodeName, err)
	}
	if _, err := config.Load("", filepath.Join(dir, "none"), noFlags()); err == nil || !strings.Contains(err.Error(), "omit --config-dir") {
		t.Errorf("missing directory: got error %v", err)
	}
	if _, err := config.Load(dir, "", noFlags()); err == nil || !strings.Contains(err.Error(), "must be a regular file") {
		t.Errorf("directory as file: got error %v", err)
	}
}

func TestNodeAgentConfig_Example(t *testing.T) {
	c, err := config.Load(filepath.Join("testdata", "config.yaml"), "", noFlags())
	if err != nil {
		t.Fatal(err)
	}
	node, err := c.NodeAgentConfig()
	if err != nil {
		t.Fatal(err)
	}
	if node.NodeName != "edge-1" || node.FileCheckFrequency != 30*time.Second || node.NodeLabels["example.com/disk"] != "ssd" || node.NoRegistration {
		t.Errorf("got %+v", node)
	}
	taints := []v1.Taint{{Key: "example.com/dedicated", Value: "edge", Effect: v1.TaintEffectNoSchedule}}
	if diff := cmp.Diff(taints, node.RegisterWithTaints); diff != "" {
		t.Error(diff)
	}
}

// Every field with a non-default value is passed on.
func TestNodeAgentConfig_AllFields(t *testing.T) {
	c, err := load(t, nil, identity+`
staticPodPath: /m
syncFrequency: 2m
runtimeRequestTimeout: 3m
maxParallelImagePulls: 4
imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages
preloadedImagesVerificationAllowlist: [reg.io/team/*]
imageGCHighThresholdPercent: 90
imageGCLowThresholdPercent: 70
imageMinimumGCAge: 1m
imageMaximumGCAge: 100h
seccompDefault: true
allowedUnsafeSysctls: [net.core.*, kernel.msgmax]
allowProbesToNodeAddresses: true
containerLogMaxSize: 5Mi
containerLogMaxFiles: 6
cgroupDriver: systemd
cgroupsPerQOS: false
enforceNodeAllocatable: []
podPidsLimit: 100
singleProcessOOMKill: true
cpuCFSQuota: false
resolvConf: /run/resolv.conf
providerID: cloud://a/b
nodeStatusUpdateFrequency: 7s
nodeStatusReportFrequency: 8m
nodeLeaseDurationSeconds: 9
nodeStatusMaxImages: -1
kubeReserved: {cpu: 100m, memory: 1Gi}
systemReserved: {cpu: 200m, ephemeral-storage: 2Gi}
evictionHard: {memory.available: 1Gi}
mergeDefaultEvictionSettings: true
evictionSoft: {nodefs.available: 20%}
evictionSoftGracePeriod: {nodefs.available: 1m}
evictionMinimumReclaim: {nodefs.available: 1Gi}
evictionMaxPodGracePeriod: 30
evictionPressureTransitionPeriod: 2m
eventRecordQPS: 10
eventBurst: 11
history: {maxDisk: "0", maxAge: 1h, logLines: 0, logBytes: 1Ki, sync: 2s}
alerting:
  enabled: false
  ruleFiles: [/r/a.yaml, more]
  defaults: false
  disable: [PodFailed]
  externalURL: https://n1.example.com
  events: false
  alertmanagers: [{url: "http://am:9093", username: u, passwordFile: /p, tokenFile: /t, caFile: /ca, certFile: /c, keyFile: /k, timeout: 3s}]
  webhooks: [{name: w, url: "https://hook", secretFile: s, tokenFile: /t, caFile: /ca, certFile: /c, keyFile: /k, timeout: 4s}]
  dryRun: true
  programs: [{name: fix, path: /usr/local/bin/fix, args: [-v], user: daemon}]
address: 10.0.0.1
port: 10251
tlsMinVersion: VersionTLS13
tlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
authentication: {webhook: {cacheTTL: 1m}, anonymous: {enabled: true}}
authorization:
  webhook: {cacheAuthorizedTTL: 2m, cacheUnauthorizedTTL: 3s}
  rules: [{users: [u], groups: [g], verbs: [get], subresources: [pods]}]
enableDebuggingHandlers: false
enableSystemLogHandler: false
enableProfilingHandler: false
healthzPort: 10249
healthzBindAddress: "::1"
`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.NodeAgentConfig()
	if err != nil {
		t.Fatal(err)
	}
	want, err := (&config.Config{
		NodeName: c.NodeName, DataDir: c.DataDir, Runtime: c.Runtime, RegisterNode: true, MaxPods: c.MaxPods, StaticPodPath: "/m",
		FileCheckFrequency: c.FileCheckFrequency, HTTPCheckFrequency: c.HTTPCheckFrequency, ContainerLogMaxSize: "1",
		History: c.History,
	}).NodeAgentConfig()
	if err != nil {
		t.Fatal(err)
	}
	want.SyncFrequency, want.RuntimeRequestTimeout, want.MaxParallelImagePulls = 2*time.Minute, 3*time.Minute, 4
	want.ImagePullCredentialsVerificationPolicy = "NeverVerifyAllowlistedImages"
	want.PreloadedImagesVerificationAllowlist = []string{"reg.io/team/*"}
	want.ImageGC = &imagegc.Policy{HighThresholdPercent: 90, LowThresholdPercent: 70, MinAge: time.Minute, MaxAge: 100 * time.Hour}
	want.SeccompDefault, want.AllowedUnsafeSysctls = true, []string{"net.core.*", "kernel.msgmax"}
	want.AllowProbesToNodeAddresses = true
	want.ContainerLogMaxSize, want.ContainerLogMaxFiles = 5<<20, 6
	want.NoCgroupsPerQOS, want.EnforceNodeAllocatable, want.PodPidsLimit, want.SingleProcessOOMKill = true, []string{}, 100, true
	want.NoCPUCFSQuota = true
	want.CgroupDriver, want.ResolvConf, want.ProviderID = "systemd", "/run/resolv.conf", "cloud://a/b"
	want.NodeStatusUpdateFrequency, want.NodeStatusReportFrequency, want.NodeLeaseDuration = 7*time.Second, 8*time.Minute, 9*time.Second
	want.NodeStatusMaxImages = new(-1)
	want.Reserved = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("300m"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourceEphemeralStorage: resource.MustParse("2Gi"),
	}
	type values = map[string]string
	want.Eviction = eviction.Settings{
		Hard: values{"memory.available": "1Gi"}, MergeDefaults: true, Soft: values{"nodefs.available": "20%"},
		SoftGracePeriod: values{"nodefs.available": "1m"}, MinimumReclaim: values{"nodefs.available": "1Gi"}, MaxPodGracePeriod: 30,
		PressureTransitionPeriod: 2 * time.Minute,
	}
	want.EventQPS, want.EventBurst = 10, 11
	want.History.MaxDisk, want.History.MaxAge, want.History.LogLines, want.History.LogBytes = -1, time.Hour, -1, 1024
	want.History.Sync = 2 * time.Second
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	want.Alerting = nodeagent.AlertingConfig{
		Disabled: true, RuleFiles: []string{"/r/a.yaml", filepath.Join(dir, "more")}, NoDefaults: true, Disable: []string{"PodFailed"},
		ExternalURL: "https://n1.example.com", NoEvents: true, DryRun: true,
		Programs: []deed.Program{{Name: "fix", Path: "/usr/local/bin/fix", Args: []string{"-v"}, User: "daemon"}},
		Alertmanagers: []notify.Alertmanager{{HTTP: notify.HTTP{
			URL: "http://am:9093", Username: "u", PasswordFile: "/p", TokenFile: "/t", CAFile: "/ca", CertFile: "/c", KeyFile: "/k",
			Timeout: 3 * time.Second,
		}}},
		Webhooks: []notify.Webhook{{Name: "w", SecretFile: filepath.Join(dir, "s"), HTTP: notify.HTTP{
			URL: "https://hook", TokenFile: "/t", CAFile: "/ca", CertFile: "/c", KeyFile: "/k", Timeout: 4 * time.Second,
		}}},
	}
	want.Server = nodeagent.ServerConfig{
		Address: "10.0.0.1:10251", HealthAddress: "[::1]:10249",
		MinVersion: "VersionTLS13", CipherSuites: []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
		Auth: auth.Config{
			Anonymous: true, TokenTTL: time.Minute, AllowedTTL: 2 * time.Minute, DeniedTTL: 3 * time.Second,
			Rules: []auth.Rule{{Users: []string{"u"}, Groups: []string{"g"}, Verbs: []string{"get"}, Subresources: []string{"pods"}}},
		},
	}
	ignoreFunction := cmpopts.IgnoreFields(nodeagent.ServerConfig{}, "Configz")
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), ignoreFunction); diff != "" {
		t.Error(diff)
	}
	c.EventRecordQPS = 0
	if got, err := c.NodeAgentConfig(); err != nil || got.EventQPS != -1 {
		t.Errorf("eventRecordQPS 0: got EventQPS %v, error %v, want -1", got.EventQPS, err)
	}
}

func TestBind_FlagsMatchFields(t *testing.T) {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Bind(set)
	fields := map[string]bool{}
	for _, field := range config.Fields() {
		if field.Flag != "" && set.Lookup(field.Flag) == nil {
			t.Errorf("%s: flag --%s does not exist", field.Path, field.Flag)
		}
		fields[field.Flag] = true
	}
	set.VisitAll(func(flag *pflag.Flag) {
		if !fields[flag.Name] {
			t.Errorf("--%s has no field", flag.Name)
		}
	})
}

// Load does not panic.
func FuzzLoad(f *testing.F) {
	f.Add("maxPods: 3\nlogging: {verbosity: 1}\n")
	f.Add("registerWithTaints: [{key: a}]\nnodeLabels: &a {b: c}\nstaticPodURLHeader: {x: [*a]}\n")
	f.Add("clusterDNS: &a [*a]\n<<: {nodeName: x}\n? [a]\n: b\n")
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, []byte(identity+text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = config.Load(file, "", noFlags())
	})
}
