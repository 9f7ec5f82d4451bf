package node_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/parity/internal/recorder"
)

// createObjects creates the objects that the pods refer to.
func (h *harness) createObjects() {
	h.t.Helper()
	core := h.Admin.CoreV1()
	_, err := core.ConfigMaps(h.Namespace).Create(h.t.Context(), &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"},
		Data:       map[string]string{"colour": "green", "shape": "round"}, BinaryData: map[string][]byte{"raw": {1, 2, 3}},
	}, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	_, err = core.Secrets(h.Namespace).Create(h.t.Context(), &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "credentials"}, Data: map[string][]byte{"password": []byte("sesame")},
	}, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	_, err = core.Services(h.Namespace).Create(h.t.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "store"},
		Spec:       v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
}

func objectRef(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

func fieldRef(path string) *v1.ObjectFieldSelector { return &v1.ObjectFieldSelector{FieldPath: path} }

func TestPod_Volumes(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	h.createObjects()
	if err := os.WriteFile(filepath.Join(h.workDir, "file"), []byte("from the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newPod("volumes", newContainer("main", "pause"), newContainer("other", "pause"))
	p.Labels = map[string]string{"app": "shop"}
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
	p.Spec.Volumes = newVolumes(h.workDir)
	for _, volume := range p.Spec.Volumes {
		mount := v1.VolumeMount{Name: volume.Name, MountPath: "/v/" + volume.Name}
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, mount)
	}
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts,
		v1.VolumeMount{Name: "settings", MountPath: "/single", SubPath: "colour"})
	p.Spec.Containers[1].VolumeMounts = []v1.VolumeMount{{Name: "scratch", MountPath: "/shared"}}
	h.createPod(p)
	got := h.Await("volumes", "ready", isReady)
	for file, want := range map[string]string{
		"/v/host/file": "from the host", "/v/settings/colour": "green", "/v/settings/raw": "\x01\x02\x03", "/single": "green",
		"/v/credentials/sub/password": "sesame", "/v/pod/labels": `app="shop"`, "/v/pod/memory": "64", "/v/projected/name": "volumes",
		"/v/projected/c/shape": "round", "/v/projected/s/password": "sesame",
	} {
		if content := h.exec(got, "main", "cat", file); content != want {
			t.Errorf("%s: got %q, want %q", file, content, want)
		}
	}
	for _, scratch := range []string{"scratch", "memory"} {
		h.exec(got, "main", "note", "/v/"+scratch+"/note", "shared")
	}
	if content := h.exec(got, "other", "cat", "/shared/note"); content != "shared\n" {
		t.Errorf("emptyDir in the other container: got %q", content)
	}
	if mounts := h.exec(got, "main", "cat", "/proc/mounts"); !strings.Contains(mounts, "tmpfs /v/memory tmpfs") ||
		!strings.Contains(mounts, "tmpfs /v/credentials tmpfs") {
		t.Errorf("got mounts %s, want tmpfs for memory and credentials", mounts)
	}
	h.checkToken(h.exec(got, "main", "cat", "/v/projected/token"), got)
}

// newVolumes returns one volume of each kind that a node can provide by itself.
func newVolumes(hostDir string) []v1.Volume {
	volume := func(name string, source v1.VolumeSource) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: source}
	}
	size := resource.MustParse("1Mi")
	megabytes := &v1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.memory", Divisor: size}
	return []v1.Volume{
		volume("scratch", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		volume("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &size}}),
		volume("host", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: hostDir}}),
		volume("settings", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: objectRef("settings")}}),
		volume("credentials", v1.VolumeSource{Secret: &v1.SecretVolumeSource{
			SecretName: "credentials", Items: []v1.KeyToPath{{Key: "password", Path: "sub/password"}},
		}}),
		volume("pod", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: fieldRef("metadata.labels")}, {Path: "memory", ResourceFieldRef: megabytes},
		}}}),
		volume("projected", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(600))}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "name", FieldRef: fieldRef("metadata.name")}}}},
			{ConfigMap: &v1.ConfigMapProjection{
				LocalObjectReference: objectRef("settings"), Items: []v1.KeyToPath{{Key: "shape", Path: "c/shape"}},
			}},
			{Secret: &v1.SecretProjection{LocalObjectReference: objectRef("credentials"), Items: []v1.KeyToPath{{Key: "password", Path: "s/password"}}}},
		}}}),
	}
}

// checkToken fails the test unless the token authenticates the pod's service account.
func (h *harness) checkToken(token string, p *v1.Pod) {
	h.t.Helper()
	config := rest.AnonymousClientConfig(h.cluster.AdminConfig())
	config.BearerToken = token
	review, err := recorder.NewClient(h.t, config).AuthenticationV1().SelfSubjectReviews().Create(
		h.t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	user := review.Status.UserInfo
	if user.Username != "system:serviceaccount:"+h.Namespace+":default" ||
		fmt.Sprint(user.Extra["authentication.kubernetes.io/pod-uid"]) != fmt.Sprintf("[%s]", p.UID) {
		h.t.Errorf("got user %+v, want the pod's service account", user)
	}
}

func TestPod_EnvironmentVariables(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	h.createObjects()
	c := newContainer("main", "pause")
	c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
	c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
	c.EnvFrom = []v1.EnvFromSource{
		{Prefix: "S_", ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: objectRef("settings")}},
		{SecretRef: &v1.SecretEnvSource{LocalObjectReference: objectRef("credentials")}},
	}
	from := func(name string, source v1.EnvVarSource) v1.EnvVar { return v1.EnvVar{Name: name, ValueFrom: &source} }
	c.Env = []v1.EnvVar{
		{Name: "PLAIN", Value: "1"}, {Name: "REFERS", Value: "$(PLAIN)$(IP)$$(PLAIN)"},
		from("IP", v1.EnvVarSource{FieldRef: fieldRef("status.podIP")}),
		{Name: "AT", Value: "http://$(IP)"}, from("NODE", v1.EnvVarSource{FieldRef: fieldRef("spec.nodeName")}),
		from("HOST", v1.EnvVarSource{FieldRef: fieldRef("status.hostIP")}),
		from("TEAM", v1.EnvVarSource{FieldRef: fieldRef("metadata.labels['team']")}),
		from("COLOUR", v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: objectRef("settings"), Key: "colour"}}),
		from("PASSWORD", v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: objectRef("credentials"), Key: "password"}}),
		from("CPU", v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "requests.cpu", Divisor: resource.MustParse("1m")}}),
		from("MEMORY", v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.memory"}}),
		from("NONE", v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
			LocalObjectReference: objectRef("absent"), Key: "x", Optional: new(true),
		}}),
	}
	p := newPod("env", c)
	p.Labels = map[string]string{"team": "shop"}
	h.createPod(p)
	got := h.Await("env", "ready", isReady)
	environment := "\n" + h.exec(got, "main", "env")
	for _, want := range []string{
		"S_colour=green", "S_shape=round", "password=sesame", "PLAIN=1", "REFERS=1$(IP)$(PLAIN)", "IP=" + got.Status.PodIP,
		"AT=http://" + got.Status.PodIP, "NODE=" + h.NodeName, "HOST=" + got.Status.HostIP, "TEAM=shop", "COLOUR=green", "PASSWORD=sesame",
		"CPU=100", "MEMORY=67108864", "STORE_SERVICE_PORT=80", "HOSTNAME=env",
	} {
		if !strings.Contains(environment, "\n"+want+"\n") {
			t.Errorf("got environment %s, want %s in it", environment, want)
		}
	}
	if strings.Contains(environment, "\nNONE=") {
		t.Error("got variable NONE, want it omitted")
	}
}

func TestPod_ConfigMapUpdated(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	h.createObjects()
	p := newPod("reader", newContainer("main", "pause"))
	p.Spec.Volumes = []v1.Volume{{Name: "settings", VolumeSource: v1.VolumeSource{
		ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: objectRef("settings")},
	}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "settings", MountPath: "/settings"}}
	h.createPod(p)
	got := h.Await("reader", "ready", isReady)
	h.kubectl("patch", "configmap", "settings", "--patch", `{"data":{"colour":"blue","size":"xl","shape":null}}`)
	// The node does not watch config maps: the pod's next sync updates the volume, within a minute and a half.
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	for h.exec(got, "main", "cat", "/settings/colour") != "blue" {
		select {
		case <-ctx.Done():
			t.Fatal("the volume was not updated")
		case <-time.After(time.Second):
		}
	}
	if size := h.exec(got, "main", "cat", "/settings/size"); size != "xl" {
		t.Errorf("new file: got %q, want xl", size)
	}
	if pod := h.Await("reader", "ready", isReady); containerStatus(pod, "main").RestartCount != 0 {
		t.Error("the container was restarted")
	}
}

func TestPod_MissingConfigMap(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	c := newContainer("main", "env")
	c.EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: objectRef("settings")}}}
	h.createPod(newPod("early", c))
	h.Await("early", "waiting for a config map", func(p *v1.Pod) bool {
		waiting := containerStatus(p, "main").State.Waiting
		return waiting != nil && waiting.Reason == "CreateContainerConfigError" && strings.Contains(waiting.Message, `"settings"`)
	})
	h.createObjects()
	h.Await("early", "started", func(p *v1.Pod) bool {
		c := containerStatus(p, "main")
		return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
	})
}
