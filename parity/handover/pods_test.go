package handover_test

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/parity/containerd"
)

// tokenVolume is the volume that the ServiceAccount admission plugin adds to pods.
const (
	tokenVolume = "kube-api-access"
	tokenPath   = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// newPod returns a pod with one container, "main", and a token.
func newPod(name string, mutate ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app": name}},
		Spec: v1.PodSpec{
			NodeName: nodeName, ServiceAccountName: "default", TerminationGracePeriodSeconds: new(int64(2)),
			Volumes: []v1.Volume{{Name: tokenVolume, VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{
					{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
					{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}},
					{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{fieldFile("namespace", "metadata.namespace")}}},
				},
			}}}},
			Containers: []v1.Container{newContainer("main", "pause")},
		},
	}
	for _, change := range mutate {
		change(pod)
	}
	for i := range pod.Spec.Containers {
		addMount(&pod.Spec.Containers[i], tokenVolume, tokenPath)
	}
	return pod
}

func newContainer(name string, args ...string) v1.Container {
	return v1.Container{
		Name: name, Image: containerd.TestpodImage, ImagePullPolicy: v1.PullIfNotPresent, Command: append([]string{"/testpod"}, args...),
	}
}

func fieldFile(path, field string) v1.DownwardAPIVolumeFile {
	return v1.DownwardAPIVolumeFile{Path: path, FieldRef: &v1.ObjectFieldSelector{FieldPath: field}}
}

func addMount(container *v1.Container, volume, path string) {
	container.VolumeMounts = append(container.VolumeMounts, v1.VolumeMount{Name: volume, MountPath: path})
}

func addVolume(pod *v1.Pod, name string, source v1.VolumeSource) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
}

func command(args ...string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.Containers[0].Command = append([]string{"/testpod"}, args...) }
}

// scratch adds emptyDirs on disk and in memory, and a subPath of each.
func scratch(pod *v1.Pod) {
	addVolume(pod, "disk", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	addVolume(pod, "memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}})
	container := &pod.Spec.Containers[0]
	addMount(container, "disk", "/disk")
	addMount(container, "memory", "/memory")
	container.VolumeMounts = append(container.VolumeMounts,
		v1.VolumeMount{Name: "disk", MountPath: "/disk-sub", SubPath: "sub/path"},
		v1.VolumeMount{Name: "memory", MountPath: "/memory-sub", SubPath: "sub/path"})
}

// files adds volumes of a config map, a secret and the downward API, and a single file of the config map.
func files(pod *v1.Pod) {
	named := v1.LocalObjectReference{Name: "settings"}
	addVolume(pod, "settings", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: named}})
	addVolume(pod, "passwords", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "passwords"}})
	addVolume(pod, "self", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
		Items: []v1.DownwardAPIVolumeFile{fieldFile("labels", "metadata.labels")},
	}})
	container := &pod.Spec.Containers[0]
	for _, volume := range []string{"settings", "passwords", "self"} {
		addMount(container, volume, "/"+volume)
	}
	container.VolumeMounts = append(container.VolumeMounts, v1.VolumeMount{Name: "settings", MountPath: "/colour", SubPath: "colour"})
}

// probed adds an HTTP server and probes.
func probed(pod *v1.Pod) {
	command("serve")(pod)
	handler := v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8080)}}
	container := &pod.Spec.Containers[0]
	container.ReadinessProbe = &v1.Probe{ProbeHandler: handler, PeriodSeconds: 1}
	container.LivenessProbe = &v1.Probe{ProbeHandler: handler, PeriodSeconds: 1}
	container.Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: v1.ProtocolTCP}}
}

func initialized(pod *v1.Pod) {
	addVolume(pod, "work", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	sidecar := newContainer("sidecar", "pause")
	sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	pod.Spec.InitContainers = []v1.Container{newContainer("first", "note", "/work/log", "first"), sidecar, newContainer("second", "note", "/work/log", "second")}
	for i := range pod.Spec.InitContainers {
		addMount(&pod.Spec.InitContainers[i], "work", "/work")
	}
	addMount(&pod.Spec.Containers[0], "work", "/work")
}

func hooked(pod *v1.Pod) {
	exec := func(text string) *v1.LifecycleHandler {
		return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/testpod", "note", "/disk/hooks", text}}}
	}
	scratch(pod)
	container := &pod.Spec.Containers[0]
	container.Lifecycle = &v1.Lifecycle{PostStart: exec("started"), PreStop: exec("stopping")}
	container.TerminationMessagePath, container.TerminationMessagePolicy = "/message", v1.TerminationMessageFallbackToLogsOnError
}

func resources(requests, limits v1.ResourceList) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: requests, Limits: limits}
	}
}

func restartPolicy(policy v1.RestartPolicy) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.RestartPolicy = policy }
}

// apiPods returns the pods of the API server that run when the node changes hands.
func apiPods() []*v1.Pod {
	small := v1.ResourceList{v1.ResourceCPU: resource.MustParse("50m"), v1.ResourceMemory: resource.MustParse("64Mi")}
	return []*v1.Pod{
		newPod("web-1", probed), newPod("web-2", probed), newPod("web-3", probed, scratch), newPod("web-4", probed, files),
		newPod("scratch", scratch), newPod("crashed", scratch), newPod("files", files), newPod("initialized", initialized),
		newPod("hooked", hooked),
		newPod("host-network", func(pod *v1.Pod) { pod.Spec.HostNetwork = true }),
		newPod("two-containers", func(pod *v1.Pod) {
			pod.Spec.ShareProcessNamespace = new(true)
			pod.Spec.Containers = append(pod.Spec.Containers, newContainer("peer", "pause"))
			pod.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"printer"}}}
		}),
		newPod("user", scratch, func(pod *v1.Pod) {
			pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(1000)), FSGroup: new(int64(2000))}
		}),
		newPod("guaranteed", resources(small, small)), newPod("burstable", resources(small, nil)),
		newPod("exec-probe", func(pod *v1.Pod) {
			probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/testpod", "cat", "/etc/hosts"}}}, PeriodSeconds: 2}
			pod.Spec.Containers[0].ReadinessProbe, pod.Spec.Containers[0].StartupProbe = probe, probe.DeepCopy()
		}),
		newPod("on-failure", restartPolicy(v1.RestartPolicyOnFailure)),
		newPod("succeeded", restartPolicy(v1.RestartPolicyNever), command("exit", "0")),
		newPod("failed", restartPolicy(v1.RestartPolicyNever), command("exit", "3", "--message", "broken")),
		newPod(deletedByHerald, scratch, files), newPod(deletedByKubelet, scratch, files),
	}
}

// Pods that are deleted by the agent that did not start them.
const (
	deletedByHerald  = "deleted-by-herald"
	deletedByKubelet = "deleted-by-kubelet"
)

// staticPods returns the manifests of static pods.
func staticPods() []*v1.Pod {
	static := func(name string, mutate ...func(*v1.Pod)) *v1.Pod {
		pod := &v1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
			Spec: v1.PodSpec{
				Containers: []v1.Container{newContainer("main", "pause")}, TerminationGracePeriodSeconds: new(int64(2)),
			},
		}
		for _, change := range append(mutate, scratch) {
			change(pod)
		}
		return pod
	}
	return []*v1.Pod{
		static("static"),
		static("static-with-uid", func(pod *v1.Pod) { pod.UID = "0d1f0d0a-77d5-4a0b-b7ae-3c2e0f4c9a11" }),
		static("static-host-network", func(pod *v1.Pod) { pod.Spec.HostNetwork = true }),
	}
}
