package criconfig_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/cri/criconfig"
)

// Classes of fields. Every field of a pod has one: nothing is ignored silently.
const (
	honoured  = "honoured"      // by the agent or the runtime
	admission = "admission"     // a pod that does not fit is rejected
	cluster   = "cluster"       // for the scheduler and controllers; means nothing on a node
	harmless  = "no effect"     // means nothing for what a Linux node or its volumes can do, as with the kubelet
	refused   = "not supported" // the pod waits with an event that names the field, and herald check fails
)

// fieldSupport classifies each field of the types that a pod consists of. A field that Kubernetes adds is in no list, and fails
// the test until it is classified.
var fieldSupport = map[reflect.Type]map[string][]string{
	reflect.TypeFor[v1.PodSpec](): {
		honoured: {
			"volumes", "initContainers", "containers", "ephemeralContainers", "terminationGracePeriodSeconds", "dnsPolicy",
			"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "securityContext", "imagePullSecrets", "hostname",
			"subdomain", "hostAliases", "priority", "dnsConfig", "overhead", "setHostnameAsFQDN", "hostnameOverride", "resources",
			"restartPolicy", "activeDeadlineSeconds", "enableServiceLinks", "readinessGates", "runtimeClassName", "serviceAccountName", "serviceAccount",
			"automountServiceAccountToken", "priorityClassName",
		},
		admission: {"nodeSelector", "nodeName", "affinity", "tolerations", "os"},
		cluster:   {"schedulerName", "preemptionPolicy", "topologySpreadConstraints", "schedulingGates", "schedulingGroup"},
		refused:   {"hostUsers", "resourceClaims"},
	},
	reflect.TypeFor[v1.Container](): {
		honoured: {
			"name", "image", "command", "args", "workingDir", "ports", "resources", "volumeMounts", "lifecycle",
			"terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "securityContext", "stdin", "stdinOnce", "tty",
			"env", "envFrom", "resizePolicy", "restartPolicy", "restartPolicyRules", "livenessProbe", "readinessProbe", "startupProbe",
		},
		refused: {"volumeDevices"},
	},
	reflect.TypeFor[v1.EphemeralContainer](): {honoured: {"", "targetContainerName"}},
	reflect.TypeFor[v1.PodSecurityContext](): {
		honoured: {
			"seLinuxOptions", "runAsUser", "runAsGroup", "runAsNonRoot", "supplementalGroups", "fsGroup", "seccompProfile",
		},
		admission: {"sysctls", "supplementalGroupsPolicy", "appArmorProfile"},
		harmless:  {"windowsOptions", "fsGroupChangePolicy", "seLinuxChangePolicy"},
	},
	reflect.TypeFor[v1.SecurityContext](): {
		honoured: {
			"capabilities", "privileged", "seLinuxOptions", "runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem",
			"allowPrivilegeEscalation", "procMount", "seccompProfile",
		},
		admission: {"appArmorProfile"},
		harmless:  {"windowsOptions"},
	},
	reflect.TypeFor[v1.VolumeSource](): {
		honoured: {"hostPath", "emptyDir", "secret", "configMap", "downwardAPI", "projected"},
		refused: {
			"gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "persistentVolumeClaim", "rbd",
			"flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk",
			"photonPersistentDisk", "portworxVolume", "scaleIO", "storageos", "csi", "ephemeral", "image",
		},
	},
	reflect.TypeFor[v1.VolumeProjection](): {
		honoured: {"secret", "downwardAPI", "configMap", "serviceAccountToken"}, refused: {"clusterTrustBundle", "podCertificate"},
	},
	reflect.TypeFor[v1.EmptyDirVolumeSource](): {honoured: {"medium", "sizeLimit"}},
	reflect.TypeFor[v1.HostPathVolumeSource](): {honoured: {"path", "type"}},
	reflect.TypeFor[v1.VolumeMount](): {
		honoured: {"name", "readOnly", "recursiveReadOnly", "mountPath", "subPath", "mountPropagation", "subPathExpr"},
	},
	reflect.TypeFor[v1.ContainerPort]():        {honoured: {"name", "containerPort", "protocol", "hostIP"}, admission: {"hostPort"}},
	reflect.TypeFor[v1.EnvVarSource]():         {honoured: {"fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef"}, refused: {"fileKeyRef"}},
	reflect.TypeFor[v1.EnvFromSource]():        {honoured: {"prefix", "configMapRef", "secretRef"}},
	reflect.TypeFor[v1.ResourceRequirements](): {admission: {"requests", "limits"}, refused: {"claims"}},
	reflect.TypeFor[v1.Lifecycle]():            {honoured: {"postStart", "preStop", "stopSignal"}},
	reflect.TypeFor[v1.LifecycleHandler]():     {honoured: {"exec", "httpGet", "sleep"}, refused: {"tcpSocket"}},
	reflect.TypeFor[v1.Probe](): {
		honoured: {
			"", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold", "terminationGracePeriodSeconds",
		},
	},
	reflect.TypeFor[v1.ProbeHandler](): {honoured: {"exec", "httpGet", "tcpSocket", "grpc"}},
	reflect.TypeFor[v1.PodDNSConfig](): {honoured: {"nameservers", "searches", "options"}},
	reflect.TypeFor[v1.HostAlias]():    {honoured: {"ip", "hostnames"}},
}

// fieldNotes completes the classification, by type and field.
var fieldNotes = map[string]string{
	"PodSpec.affinity":                            "required node affinity; the rest is the scheduler's",
	"PodSpec.tolerations":                         "taints with NoExecute; the rest is the scheduler's",
	"PodSpec.os":                                  "only linux",
	"PodSpec.resources":                           "limits and requests of the pod's cgroup",
	"PodSpec.priorityClassName":                   "not resolved for static pods: they need priority too",
	"PodSpec.runtimeClassName":                    "a RuntimeClass; without an API server, a handler that the runtime reports",
	"PodSpec.hostUsers":                           "if false",
	"PodSecurityContext.fsGroupChangePolicy":      "for volumes of drivers",
	"PodSecurityContext.seLinuxChangePolicy":      "for volumes of drivers",
	"PodSecurityContext.sysctls":                  "safe ones, and those in allowedUnsafeSysctls",
	"PodSecurityContext.appArmorProfile":          "rejected on a machine without AppArmor, unless Unconfined",
	"SecurityContext.appArmorProfile":             "rejected on a machine without AppArmor, unless Unconfined",
	"LifecycleHandler.tcpSocket":                  "the pod starts, and the hook always fails, as with the kubelet",
	"Container.resizePolicy":                      "for resizes, see SCOPE.md",
	"EmptyDirVolumeSource.medium":                 "HugePages is not supported",
	"ContainerPort.hostPort":                      "rejected if another pod has it",
	"ResourceRequirements.limits":                 "extended resources are counted if the Node has them; no device is allocated",
	"PodSecurityContext.supplementalGroupsPolicy": "Strict is rejected if the runtime does not support it",
}

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

func TestUnsupported_EveryFieldClassified(t *testing.T) {
	for kind, lists := range fieldSupport {
		var listed []string
		for _, names := range lists {
			listed = append(listed, names...)
		}
		var fields []string
		for i := range kind.NumField() {
			fields = append(fields, jsonName(kind.Field(i)))
		}
		slices.Sort(listed)
		slices.Sort(fields)
		if !slices.Equal(listed, fields) {
			t.Errorf("%v: got fields\n%v, classified are\n%v", kind, fields, listed)
		}
	}
}

// rejectedPods has a pod for each rejected field, by the path that the error must name.
var rejectedPods = map[string]func(*v1.Pod){
	"spec.os.name":                     func(pod *v1.Pod) { pod.Spec.OS = &v1.PodOS{Name: v1.Windows} },
	"spec.hostUsers":                   func(pod *v1.Pod) { pod.Spec.HostUsers = new(false) },
	"spec.resourceClaims":              func(pod *v1.Pod) { pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}} },
	"spec.containers[0].volumeDevices": func(pod *v1.Pod) { pod.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "disk"}} },
	"spec.containers[0].resources.claims": func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "gpu"}}
	},
	"spec.initContainers[0].lifecycle.preStop.tcpSocket": func(pod *v1.Pod) {
		pod.Spec.InitContainers = []v1.Container{{Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{}}}}}
	},
	"spec.containers[0].env[0].valueFrom.fileKeyRef": func(pod *v1.Pod) {
		pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X", ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{}}}}
	},
	"spec.volumes[0].projected.sources[0].clusterTrustBundle": projecting(v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{}}),
	"spec.volumes[0].projected.sources[0].podCertificate":     projecting(v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{}}),
	"spec.ephemeralContainers[0].volumeDevices": func(pod *v1.Pod) {
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{VolumeDevices: []v1.VolumeDevice{{}}},
		}}
	},
	"spec.volumes[0].emptyDir.medium": func(pod *v1.Pod) {
		pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "HugePages-2Mi"}}}}
	},
}

func projecting(source v1.VolumeProjection) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		projected := &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{source}}
		pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{Projected: projected}}}
	}
}

// Every refused field has a pod that proves it; volume sources have tests of their own.
func TestUnsupported_RefusedFieldsProven(t *testing.T) {
	proven := strings.Join(slices.Collect(maps.Keys(rejectedPods)), " ") + " "
	for kind, lists := range fieldSupport {
		for _, name := range lists[refused] {
			if kind == reflect.TypeFor[v1.VolumeSource]() {
				continue
			}
			if !strings.Contains(proven, "."+name+" ") {
				t.Errorf("%s.%s: no pod shows that it is refused", kind.Name(), name)
			}
		}
	}
}

var update = flag.Bool("update", false, "rewrite docs/pod-fields.md")

func TestFields_Document(t *testing.T) {
	const file = "../../docs/pod-fields.md"
	want := fieldsDocument()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil { //nolint:gosec // a public document
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is out of date (%v): run go test ./cri/criconfig -run Document -update", file, err)
	}
}

func fieldsDocument() string {
	var text strings.Builder
	text.WriteString(`# Fields of a pod

Generated by ` + "`go test ./cri/criconfig -run Document -update`" + `; do not edit. Every field that Kubernetes v1.36 has is listed.

| support | meaning |
| --- | --- |
| honoured | by the agent or the container runtime |
| admission | checked when the pod arrives: a pod that does not fit is rejected with the kubelet's reason, field and remedy |
| cluster | for the scheduler and controllers; means nothing on a node |
| no effect | means nothing for what a Linux node or its volumes can do, as with the kubelet |
| not supported | the pod stays Pending, an event names field and remedy, and ` + "`herald check`" + ` fails |

Manifests are also validated as the API server does: see the documentation of source/manifest.

| type | field | support | note |
| --- | --- | --- | --- |
`)
	kinds := slices.Collect(maps.Keys(fieldSupport))
	slices.SortFunc(kinds, func(a, b reflect.Type) int { return strings.Compare(a.Name(), b.Name()) })
	for _, kind := range kinds {
		for i := range kind.NumField() {
			name := jsonName(kind.Field(i))
			for class, names := range fieldSupport[kind] {
				if name != "" && slices.Contains(names, name) {
					fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", kind.Name(), name, class, fieldNotes[kind.Name()+"."+name])
				}
			}
		}
	}
	return text.String()
}

func TestUnsupported_NamesField(t *testing.T) {
	for path, mutate := range rejectedPods {
		if err := criconfig.Unsupported(newPod(mutate)); err == nil || !strings.Contains(err.Error(), path+": ") {
			t.Errorf("%s: got error %v", path, err)
		}
	}
	if err := criconfig.Unsupported(newPod()); err != nil {
		t.Errorf("plain pod: got error %v", err)
	}
}

// Fields that are honoured, or that mean nothing on Linux.
func TestUnsupported_Accepted(t *testing.T) {
	for name, mutate := range map[string]func(*v1.Pod){
		"limits": func(pod *v1.Pod) {
			pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{
				v1.ResourceEphemeralStorage: resource.MustParse("1Gi"), "hugepages-2Mi": resource.MustParse("4Mi"),
				"example.com/licence": resource.MustParse("1"),
			}
		},
		"pod-level resources": func(pod *v1.Pod) { pod.Spec.Resources = &v1.ResourceRequirements{} },
		"tcpSocket hook, which always fails": func(pod *v1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{}}}
		},
		"runtimeClassName": func(pod *v1.Pod) { pod.Spec.RuntimeClassName = new("fast") },
		"windowsOptions": func(pod *v1.Pod) {
			pod.Spec.SecurityContext = &v1.PodSecurityContext{WindowsOptions: &v1.WindowsSecurityContextOptions{}}
			pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{WindowsOptions: &v1.WindowsSecurityContextOptions{}}
		},
	} {
		if err := newGenerator().Unsupported(newPod(mutate)); err != nil {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

func TestUnsupported_Volumes(t *testing.T) {
	kind := reflect.TypeFor[v1.VolumeSource]()
	for i := range kind.NumField() {
		pod := newPod()
		pod.Spec.Volumes = []v1.Volume{{Name: "data"}}
		source := reflect.ValueOf(&pod.Spec.Volumes[0].VolumeSource).Elem()
		source.Field(i).Set(reflect.New(kind.Field(i).Type.Elem()))
		name := jsonName(kind.Field(i))
		err := criconfig.Unsupported(pod)
		if slices.Contains(fieldSupport[kind][honoured], name) {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), "spec.volumes[0]."+name+": ") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

func TestUnsupported_Settings(t *testing.T) {
	pod := newPod(func(pod *v1.Pod) {
		pod.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{
			{Name: "net.ipv4.tcp_syncookies", Value: "1"}, {Name: "net/core/somaxconn", Value: "1024"},
		}}
	})
	if err := criconfig.Unsupported(pod); err != nil {
		t.Errorf("allowed by some settings: got error %v", err)
	}
	err := newGenerator().Unsupported(pod)
	if err == nil || !strings.Contains(err.Error(), "spec.securityContext.sysctls[1]: ") {
		t.Errorf("got error %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "sysctls[0]") {
		t.Errorf("safe sysctl: got error %v", err)
	}
	allowing := newGenerator(func(generator *criconfig.Generator) {
		generator.AllowedUnsafeSysctls = []string{"net.core.*"}
	})
	if err := allowing.Unsupported(pod); err != nil {
		t.Errorf("allowed by the settings: got error %v", err)
	}
}

// TestUnsupported_HostNamespaceSysctls rejects sysctls that would change the node instead of the pod.
func TestUnsupported_HostNamespaceSysctls(t *testing.T) {
	for name, test := range map[string]struct {
		sysctl               string
		hostNetwork, hostIPC bool
		want                 string
	}{
		"own namespaces":        {"net.core.somaxconn", false, false, ""},
		"host network":          {"net.core.somaxconn", true, false, `"net.core.somaxconn" not allowed with host Net enabled`},
		"host network, slashes": {"net/ipv4/conf/eth0.1/forwarding", true, false, "not allowed with host Net enabled"},
		"safe, host network":    {"net.ipv4.tcp_syncookies", true, false, "not allowed with host Net enabled"},
		"host IPC":              {"kernel.shm_rmid_forced", false, true, `"kernel.shm_rmid_forced" not allowed with host IPC enabled`},
		"message queues":        {"fs.mqueue.msg_max", false, true, "not allowed with host IPC enabled"},
		"other host namespace":  {"kernel.msgmax", true, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod(func(pod *v1.Pod) {
				pod.Spec.HostNetwork, pod.Spec.HostIPC = test.hostNetwork, test.hostIPC
				pod.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: test.sysctl, Value: "1"}}}
			})
			err := criconfig.Unsupported(pod)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}
