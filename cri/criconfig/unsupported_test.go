package criconfig_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/cri/criconfig"
)

// fieldSupport classifies each field of a pod: "honoured" here, "elsewhere" in Herald, by the "cluster", or "rejected", which
// the tests below prove. A field that Kubernetes adds is in no list, and fails the test until it is classified.
var fieldSupport = map[reflect.Type]map[string][]string{
	reflect.TypeFor[v1.PodSpec](): {
		"honoured": {
			"volumes", "initContainers", "containers", "ephemeralContainers", "terminationGracePeriodSeconds", "dnsPolicy",
			"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "securityContext", "imagePullSecrets", "hostname",
			"subdomain", "hostAliases", "priority", "dnsConfig", "overhead", "setHostnameAsFQDN", "hostnameOverride", "resources",
		},
		"elsewhere": {
			"restartPolicy", "activeDeadlineSeconds", "enableServiceLinks", "readinessGates", "serviceAccountName", "serviceAccount",
			"automountServiceAccountToken",
		},
		"cluster": {
			"nodeSelector", "nodeName", "affinity", "schedulerName", "tolerations", "priorityClassName", "preemptionPolicy",
			"topologySpreadConstraints", "schedulingGates", "schedulingGroup",
		},
		"rejected": {"runtimeClassName", "os", "hostUsers", "resourceClaims"},
	},
	reflect.TypeFor[v1.Container](): {
		"honoured": {
			"name", "image", "command", "args", "workingDir", "ports", "resources", "volumeMounts", "lifecycle",
			"terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "securityContext", "stdin", "stdinOnce", "tty",
		},
		"elsewhere": {
			"env", "envFrom", "resizePolicy", "restartPolicy", "restartPolicyRules", "livenessProbe", "readinessProbe", "startupProbe",
		},
		"rejected": {"volumeDevices"},
	},
	reflect.TypeFor[v1.PodSecurityContext](): {
		"honoured": {
			"seLinuxOptions", "runAsUser", "runAsGroup", "runAsNonRoot", "supplementalGroups", "supplementalGroupsPolicy", "fsGroup",
			"seccompProfile", "appArmorProfile",
		},
		"elsewhere": {"fsGroupChangePolicy", "seLinuxChangePolicy"}, // about volumes
		"rejected":  {"sysctls"},
		"harmless":  {"windowsOptions"},
	},
	reflect.TypeFor[v1.SecurityContext](): {
		"honoured": {
			"capabilities", "privileged", "seLinuxOptions", "runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem",
			"allowPrivilegeEscalation", "procMount", "seccompProfile", "appArmorProfile",
		},
		"harmless": {"windowsOptions"},
	},
	reflect.TypeFor[v1.VolumeSource](): {
		"elsewhere": {"hostPath", "emptyDir", "secret", "configMap", "downwardAPI", "projected"},
		"rejected": {
			"gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "persistentVolumeClaim", "rbd",
			"flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk",
			"photonPersistentDisk", "portworxVolume", "scaleIO", "storageos", "csi", "ephemeral", "image",
		},
	},
	reflect.TypeFor[v1.VolumeMount](): {
		"honoured": {"name", "readOnly", "recursiveReadOnly", "mountPath", "subPath", "mountPropagation", "subPathExpr"},
	},
	reflect.TypeFor[v1.ResourceRequirements](): {"honoured": {"requests", "limits"}, "rejected": {"claims"}},
	reflect.TypeFor[v1.Lifecycle]():            {"honoured": {"postStart", "preStop", "stopSignal"}},
	reflect.TypeFor[v1.LifecycleHandler]():     {"honoured": {"exec", "httpGet", "sleep"}, "rejected": {"tcpSocket"}},
	reflect.TypeFor[v1.EphemeralContainer]():   {"honoured": {"", "targetContainerName"}},
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
	"spec.ephemeralContainers[0].volumeDevices": func(pod *v1.Pod) {
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{VolumeDevices: []v1.VolumeDevice{{}}},
		}}
	},
	"spec.volumes[0].emptyDir.medium": func(pod *v1.Pod) {
		pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "HugePages-2Mi"}}}}
	},
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
		if slices.Contains(fieldSupport[kind]["elsewhere"], name) {
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
		pod.Spec.RuntimeClassName = new("fast")
		pod.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{
			{Name: "net.ipv4.tcp_syncookies", Value: "1"}, {Name: "net/core/somaxconn", Value: "1024"},
		}}
	})
	if err := criconfig.Unsupported(pod); err != nil {
		t.Errorf("allowed by some settings: got error %v", err)
	}
	err := newGenerator().Unsupported(pod)
	for _, path := range []string{"spec.runtimeClassName: ", "spec.securityContext.sysctls[1]: "} {
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got error %v", path, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "sysctls[0]") {
		t.Errorf("safe sysctl: got error %v", err)
	}
	allowing := newGenerator(func(generator *criconfig.Generator) {
		generator.RuntimeHandlers = map[string]string{"fast": "kata"}
		generator.AllowedUnsafeSysctls = []string{"net.core.*"}
	})
	if err := allowing.Unsupported(pod); err != nil {
		t.Errorf("allowed by the settings: got error %v", err)
	}
	if got := allowing.RuntimeHandler(pod); got != "kata" {
		t.Errorf("got handler %q, want kata", got)
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
