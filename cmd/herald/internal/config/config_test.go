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

	"github.com/heraldnode/herald/cmd/herald/internal/config"
)

const identity = "apiVersion: heraldnode.github.io/v1alpha1\nkind: HeraldConfiguration\n"

// load reads files, of which the first is the file and the others are drop-ins, with flags over them.
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
	given := config.Bind(set)
	if err := set.Parse(flags); err != nil {
		t.Fatal(err)
	}
	return config.Load(file, "d", given)
}

func TestEveryMistakeIsNamedWithItsPlaceAndARemedy(t *testing.T) {
	tests := map[string]struct{ text, says string }{
		"a typing error":           {identity + "staticPodPaht: /x\n", "c.yaml:3: staticPodPaht: unknown field; did you mean staticPodPath?"},
		"another case":             {identity + "nodename: n1\n", "c.yaml:3: nodename: unknown field; did you mean nodeName?"},
		"a flag's name":            {identity + "manifests: /x\n", "c.yaml:3: manifests: unknown field; did you mean staticPodPath?"},
		"a field one level up":     {identity + "verbosity: 3\n", "c.yaml:3: verbosity: unknown field; did you mean logging.verbosity?"},
		"a field of the kubelet":   {identity + "evictionHard: {}\n", "c.yaml:3: evictionHard: unknown field; 'herald help config' lists those that there are"},
		"deep down":                {identity + "registerWithTaints:\n- key: a\n  effect: NoExecute\n  valu: b\n", "c.yaml:6: registerWithTaints[0].valu: unknown field; did you mean registerWithTaints[].value?"},
		"twice":                    {identity + "maxPods: 3\nmaxPods: 4\n", "c.yaml:4: maxPods: is set in line 3 already"},
		"a number for a duration":  {identity + "fileCheckFrequency: 20\n", "c.yaml:3: fileCheckFrequency: is 20: want a duration, like 20s or 1m30s"},
		"a text for a number":      {identity + "maxPods: lots\n", "c.yaml:3: maxPods: is lots: want a whole number"},
		"a quoted number":          {identity + "maxPods: \"3\"\n", "c.yaml:3: maxPods: is 3: want a whole number"},
		"a number for a text":      {identity + "nodeName: 5\n", `c.yaml:3: nodeName: is 5: want text: write "5", with the quotes`},
		"yes":                      {identity + "registerNode: yes\n", "c.yaml:3: registerNode: is yes: want true or false"},
		"no address":               {identity + "clusterDNS: [x]\n", "c.yaml:3: clusterDNS[0]: is x: want an IP address, like 10.0.0.1"},
		"no list":                  {identity + "clusterDNS: 10.0.0.1\n", "c.yaml:3: clusterDNS: want a list"},
		"no map":                   {identity + "nodeLabels: [a]\n", "c.yaml:3: nodeLabels: want names and values"},
		"no fields":                {identity + "logging: json\n", "c.yaml:3: logging: want fields"},
		"a list for a text":        {identity + "nodeName: [a]\n", "c.yaml:3: nodeName: want one value"},
		"a label that is none":     {identity + "nodeLabels: {a: b c}\n", "c.yaml:3: nodeLabels: a=b c is no label"},
		"a taint's effect":         {identity + "registerWithTaints: [{key: a, effect: Never}]\n", `c.yaml:3: registerWithTaints[0].effect: is "Never": want NoSchedule, PreferNoSchedule or NoExecute`},
		"a taint's key":            {identity + "registerWithTaints: [{effect: NoExecute}]\n", "c.yaml:3: registerWithTaints[0]: = is no taint"},
		"a node's name":            {identity + "nodeName: A_b\n", `c.yaml:3: nodeName: "A_b" is no name of a node`},
		"no time":                  {identity + "httpCheckFrequency: 0s\n", "c.yaml:3: httpCheckFrequency: is 0s: want more than 0s"},
		"an open port":             {identity + "listen: 0.0.0.0:80\n", "c.yaml:3: listen: \"0.0.0.0:80\": \"0.0.0.0\" is not a loopback address"},
		"a URL that others change": {identity + "staticPodURL: http://user:secret@example.com/x\n", "c.yaml:3: staticPodURL: want an https URL"},
		"headers for nobody":       {identity + "staticPodURLHeader: {a: [b]}\n", "c.yaml:3: staticPodURLHeader: there is no staticPodURL"},
		"half a certificate":       {identity + "staticPodURLCertFile: a\n", "c.yaml:3: staticPodURLCertFile: is of use with staticPodURLKeyFile only"},
		"a path for a socket":      {identity + "containerRuntimeEndpoint: /run/c.sock\n", `c.yaml:3: containerRuntimeEndpoint: is "/run/c.sock": want a socket, like unix:///run`},
		"a socket for processes":   {identity + "runtime: process\nimageServiceEndpoint: unix:///c.sock\n", "c.yaml:4: imageServiceEndpoint: is for runtime: cri"},
		"API pods for containers":  {identity + "allowAPIPods: true\n", "c.yaml:3: allowAPIPods: is for runtime: process"},
		"another runtime":          {identity + "runtime: docker\n", `c.yaml:3: runtime: is "docker": want cri or process`},
		"no room for a socket":     {identity + "runtime: process\nlisten: 127.0.0.1:0\ndataDir: /" + strings.Repeat("x", 95) + "\n", "c.yaml:5: dataDir: is too long by 2 bytes"},
		"no limit, said wrongly":   {identity + "kubeAPIQPS: 0\n", "c.yaml:3: kubeAPIQPS: is 0: want more than 0, or -1 for no limit"},
		"no burst":                 {identity + "kubeAPIBurst: 0\n", "c.yaml:3: kubeAPIBurst: is 0: want more than 0"},
		"no limit on events":       {identity + "eventRecordQPS: -1\n", "c.yaml:3: eventRecordQPS: is -1: want more than 0, or 0 for no limit"},
		"no burst of events":       {identity + "eventBurst: 0\n", "c.yaml:3: eventBurst: is 0: want more than 0"},
		"a node never looked at":   {identity + "nodeStatusUpdateFrequency: 0s\n", "c.yaml:3: nodeStatusUpdateFrequency: is 0s: want more than 0s"},
		"a status never told":      {identity + "nodeStatusReportFrequency: -1s\n", "c.yaml:3: nodeStatusReportFrequency: is -1s: want more than 0s"},
		"a short lease":            {identity + "nodeLeaseDurationSeconds: 3\n", "c.yaml:3: nodeLeaseDurationSeconds: is 3: want at least 4"},
		"no resync":                {identity + "syncFrequency: 0s\n", "c.yaml:3: syncFrequency: is 0s: want more than 0s"},
		"no patience":              {identity + "runtimeRequestTimeout: 0s\n", "c.yaml:3: runtimeRequestTimeout: is 0s: want more than 0s"},
		"fewer than no pulls":      {identity + "maxParallelImagePulls: -1\n", "c.yaml:3: maxParallelImagePulls: is -1: want more than 0, or 0 for no limit"},
		"a log's size":             {identity + "containerLogMaxSize: 10MB\n", `c.yaml:3: containerLogMaxSize: is "10MB": want a quantity of bytes, like 10Mi`},
		"a log's size as a number": {identity + "containerLogMaxSize: 1000\n", `c.yaml:3: containerLogMaxSize: is 1000: want text: write "1000"`},
		"a log of one file":        {identity + "containerLogMaxFiles: 1\n", "c.yaml:3: containerLogMaxFiles: is 1: want at least 2"},
		"a driver":                 {identity + "cgroupDriver: docker\n", `c.yaml:3: cgroupDriver: is "docker": want cgroupfs or systemd`},
		"a relative cgroup":        {identity + "cgroupRoot: kubepods\n", `c.yaml:3: cgroupRoot: is "kubepods": begin it with a slash`},
		"no resolv.conf":           {identity + "resolvConf: \"\"\n", "c.yaml:3: resolvConf: name a file; /dev/null has no name servers"},
		"every sysctl":             {identity + "allowedUnsafeSysctls:\n- net.core.*\n- \"*\"\n", `c.yaml:5: allowedUnsafeSysctls[1]: is "*": want the name of a sysctl`},
		"PIDs kept back":           {identity + "kubeReserved:\n  cpu: 100m\n  pid: \"100\"\n", "c.yaml:5: kubeReserved.pid: nothing is kept back of that: want cpu, memory or ephemeral-storage"},
		"less than nothing":        {identity + "systemReserved: {memory: -1Gi}\n", `c.yaml:3: systemReserved.memory: is "-1Gi": want a quantity, like 500m or 1Gi`},
		"no pods":                  {identity + "maxPods: -1\n", "c.yaml:3: maxPods: is -1: want more than 0"},
		"a format":                 {identity + "logging: {format: xml}\n", `c.yaml:3: logging.format: is "xml": want text or json`},
		"silence":                  {identity + "logging: {verbosity: -1}\n", "c.yaml:3: logging.verbosity: is -1: want 0 to 4"},
		"no kubeconfig":            {identity + "kubeconfig: nowhere\n", "c.yaml:3: kubeconfig: stat "},
		"the kubelet's":            {"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n", "c.yaml:1: kind: this is the kubelet's"},
		"a tabulator":              {identity + "nodeName: a\n\tmaxPods: 3\n", "c.yaml:4: no YAML: it is indented with a tabulator: use spaces"},
		"a tabulator further in":   {identity + "logging:\n \tformat: json\n", "c.yaml:4: no YAML: it is indented with a tabulator: use spaces"},
		"no token, no tabulator":   {identity + "a: @b\n", "c.yaml:3: no YAML: found character"},
		"its kind twice":           {identity + "kind: HeraldConfiguration\n", "c.yaml:3: kind: is set in line 2 already"},
		"an empty entry":           {identity + "clusterDNS: [10.0.0.1, ~]\n", "c.yaml:3: clusterDNS[1]: is empty"},
		"an empty taint":           {identity + "registerWithTaints:\n-\n", "c.yaml:4: registerWithTaints[0]: is empty"},
		"the same taint twice":     {identity + "registerWithTaints:\n- {key: a, effect: NoExecute}\n- {key: a, value: b, effect: NoExecute}\n", "c.yaml:5: registerWithTaints[1]: a is there twice"},
		"a number of many digits":  {identity + "nodeLeaseDurationSeconds: 999999999999\n", "c.yaml:3: nodeLeaseDurationSeconds: is 999999999999: want a number up to 2147483647"},
		"no node's address":        {identity + "nodeIP: 0.0.0.0\n", "c.yaml:3: nodeIP: is 0.0.0.0: want an address by which this machine is reached"},
		"an address with a zone":   {identity + "nodeIP: fe80::1%eth0\n", "c.yaml:3: nodeIP: is fe80::1%eth0: want"},
		"a header's name":          {identity + "staticPodURL: https://a/b\nstaticPodURLHeader:\n  a b: [secret]\n", "c.yaml:5: staticPodURLHeader.a b: is no name of a header"},
		"a header's value":         {identity + "staticPodURL: https://a/b\nstaticPodURLHeader: {a: [\"secret\\nx: y\"]}\n", "c.yaml:4: staticPodURLHeader.a: has a value that no header can have"},
		"a log of part of a byte":  {identity + "containerLogMaxSize: 10m\n", `c.yaml:3: containerLogMaxSize: is "10m": want a quantity of bytes, like 10Mi`},
		"no port":                  {identity + "listen: 127.0.0.1:99999\n", `c.yaml:3: listen: "127.0.0.1:99999": want a port from 0 to 65535`},
		"a folder for a socket":    {identity + "listen: unix:///run/\n", `c.yaml:3: listen: "unix:///run/": want the path of a socket, not of a folder`},
		"a folder for a file":      {identity + "kubeconfig: /\n", "c.yaml:3: kubeconfig: / is no file"},
		"another kind":             {"apiVersion: v1\nkind: Pod\n", `c.yaml:1: is of apiVersion "v1", kind "Pod": begin it with apiVersion: heraldnode.github.io/v1alpha1`},
		"a list":                   {"- a\n", "c.yaml:1: want fields: begin it with"},
		"nothing":                  {"", "c.yaml: is empty: begin it with"},
		"no YAML":                  {identity + "a: [\n", "c.yaml:3: no YAML: "},
		"two documents":            {identity + "---\nmaxPods: 3\n", "c.yaml:3: a second document begins here"},
		"two, the second broken":   {identity + "---\na: [\n", "c.yaml:4: no YAML: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := load(t, nil, test.text); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("says %v\nwant %s", err, test.says)
			} else if strings.Contains(err.Error(), "secret") {
				t.Errorf("tells a secret: %v", err)
			}
		})
	}
}

func TestAllMistakesAreNamedAtOnce(t *testing.T) {
	_, err := load(t, nil, identity+"a: 1\nmaxPods: x\n", identity+"b: 1\n")
	if err == nil || strings.Count(err.Error(), "\n") != 2 || !strings.Contains(err.Error(), "d/10.conf:3: b: unknown field") {
		t.Errorf("says %v", err)
	}
}

func TestLaterFilesWinOverEarlierAndFlagsOverAll(t *testing.T) {
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
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
	if at := got.ListenAddress(); at != "unix://"+filepath.Join(dir, "data", "herald.sock") {
		t.Errorf("listens on %s", at)
	}
}

func TestAFlagThatIsWrongIsNamedItself(t *testing.T) {
	if _, err := load(t, []string{"--runtime=docker"}, identity); err == nil || !strings.HasPrefix(err.Error(), "nothing to run") ||
		!strings.Contains(err.Error(), `--runtime: is "docker"`) {
		t.Errorf("says %v", err)
	}
}

func TestWhatIsNoDropInIsPassedOver(t *testing.T) {
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
	none := config.Bind(pflag.NewFlagSet("", pflag.ContinueOnError))
	if got, err := config.Load("", dir, none); err != nil || got.NodeName != "five" {
		t.Errorf("%s, %v", got.NodeName, err)
	}
	if _, err := config.Load("", filepath.Join(dir, "none"), none); err == nil || !strings.Contains(err.Error(), "leave --config-dir out") {
		t.Errorf("says %v", err)
	}
	if _, err := config.Load(dir, "", none); err == nil || !strings.Contains(err.Error(), "want a file") {
		t.Errorf("says %v", err)
	}
}

func TestTheExampleIsRightAndReachesTheNode(t *testing.T) {
	c, err := config.Load(filepath.Join("testdata", "config.yaml"), "", config.Bind(pflag.NewFlagSet("", pflag.ContinueOnError)))
	if err != nil {
		t.Fatal(err)
	}
	node, err := c.Assembly()
	if err != nil {
		t.Fatal(err)
	}
	if node.NodeName != "edge-1" || node.FileCheckFrequency != 30*time.Second || node.NodeLabels["example.com/disk"] != "ssd" || node.NoRegistration {
		t.Errorf("%+v", node)
	}
	taints := []v1.Taint{{Key: "example.com/dedicated", Value: "edge", Effect: v1.TaintEffectNoSchedule}}
	if diff := cmp.Diff(taints, node.RegisterWithTaints); diff != "" {
		t.Error(diff)
	}
}

// TestEveryFieldReachesTheNode sets each field of the kubelet's to something else than its default.
func TestEveryFieldReachesTheNode(t *testing.T) {
	c, err := load(t, nil, identity+`
staticPodPath: /m
syncFrequency: 2m
runtimeRequestTimeout: 3m
maxParallelImagePulls: 4
seccompDefault: true
allowedUnsafeSysctls: [net.core.*, kernel.msgmax]
containerLogMaxSize: 5Mi
containerLogMaxFiles: 6
cgroupDriver: systemd
resolvConf: /run/resolv.conf
providerID: cloud://a/b
nodeStatusUpdateFrequency: 7s
nodeStatusReportFrequency: 8m
nodeLeaseDurationSeconds: 9
kubeReserved: {cpu: 100m, memory: 1Gi}
systemReserved: {cpu: 200m, ephemeral-storage: 2Gi}
eventRecordQPS: 10
eventBurst: 11
`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Assembly()
	if err != nil {
		t.Fatal(err)
	}
	want, err := (&config.Config{
		NodeName: c.NodeName, DataDir: c.DataDir, Runtime: c.Runtime, RegisterNode: true, MaxPods: c.MaxPods, StaticPodPath: "/m",
		FileCheckFrequency: c.FileCheckFrequency, HTTPCheckFrequency: c.HTTPCheckFrequency, ContainerLogMaxSize: "1",
	}).Assembly()
	if err != nil {
		t.Fatal(err)
	}
	want.SyncFrequency, want.RuntimeRequestTimeout, want.MaxParallelImagePulls = 2*time.Minute, 3*time.Minute, 4
	want.SeccompDefault, want.AllowedUnsafeSysctls = true, []string{"net.core.*", "kernel.msgmax"}
	want.ContainerLogMaxSize, want.ContainerLogMaxFiles = 5<<20, 6
	want.CgroupDriver, want.ResolvConf, want.ProviderID = "systemd", "/run/resolv.conf", "cloud://a/b"
	want.NodeStatusUpdateFrequency, want.NodeStatusReportFrequency, want.NodeLeaseDuration = 7*time.Second, 8*time.Minute, 9*time.Second
	want.Reserved = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("300m"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourceEphemeralStorage: resource.MustParse("2Gi"),
	}
	want.EventQPS, want.EventBurst = 10, 11
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
	c.EventRecordQPS = 0
	if got, err := c.Assembly(); err != nil || got.EventQPS != -1 {
		t.Errorf("no limit on events is %v, %v", got.EventQPS, err)
	}
}

func TestEveryFlagIsAFieldAndEveryFieldsFlagExists(t *testing.T) {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Bind(set)
	fields := map[string]bool{}
	for _, field := range config.Fields() {
		if field.Flag != "" && set.Lookup(field.Flag) == nil {
			t.Errorf("%s should be --%s, which does not exist", field.Path, field.Flag)
		}
		fields[field.Flag] = true
	}
	set.VisitAll(func(flag *pflag.Flag) {
		if !fields[flag.Name] {
			t.Errorf("--%s is no field of the file", flag.Name)
		}
	})
}

func FuzzReadingNeverPanics(f *testing.F) {
	f.Add("maxPods: 3\nlogging: {verbosity: 1}\n")
	f.Add("registerWithTaints: [{key: a}]\nnodeLabels: &a {b: c}\nstaticPodURLHeader: {x: [*a]}\n")
	f.Add("clusterDNS: &a [*a]\n<<: {nodeName: x}\n? [a]\n: b\n")
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, []byte(identity+text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = config.Load(file, "", config.Bind(pflag.NewFlagSet("", pflag.ContinueOnError)))
	})
}
