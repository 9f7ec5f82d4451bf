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

// createObjects makes what pods of the trial refer to.
func (tr *trial) createObjects() {
	tr.t.Helper()
	core := tr.Admin.CoreV1()
	_, err := core.ConfigMaps(tr.Namespace).Create(tr.t.Context(), &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"},
		Data:       map[string]string{"colour": "green", "shape": "round"}, BinaryData: map[string][]byte{"raw": {1, 2, 3}},
	}, metav1.CreateOptions{})
	if err != nil {
		tr.t.Fatal(err)
	}
	_, err = core.Secrets(tr.Namespace).Create(tr.t.Context(), &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "passwords"}, Data: map[string][]byte{"door": []byte("sesame")},
	}, metav1.CreateOptions{})
	if err != nil {
		tr.t.Fatal(err)
	}
	_, err = core.Services(tr.Namespace).Create(tr.t.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "store"},
		Spec:       v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		tr.t.Fatal(err)
	}
}

func named(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

func fieldRef(path string) *v1.ObjectFieldSelector { return &v1.ObjectFieldSelector{FieldPath: path} }

func TestEveryKindOfVolumeIsSeenInside(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	tr.createObjects()
	if err := os.WriteFile(filepath.Join(tr.diary, "outside"), []byte("the machine's"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newPod("full", runs("main", "pause"), runs("other", "pause"))
	p.Labels = map[string]string{"app": "shop"}
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
	p.Spec.Volumes = everyVolume(tr.diary)
	for _, volume := range p.Spec.Volumes {
		mount := v1.VolumeMount{Name: volume.Name, MountPath: "/v/" + volume.Name}
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, mount)
	}
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts,
		v1.VolumeMount{Name: "settings", MountPath: "/single", SubPath: "colour"})
	p.Spec.Containers[1].VolumeMounts = []v1.VolumeMount{{Name: "scratch", MountPath: "/theirs"}}
	tr.bind(p)
	got := tr.Await("full", "ready", isReady)
	for file, want := range map[string]string{
		"/v/machine/outside": "the machine's", "/v/settings/colour": "green", "/v/settings/raw": "\x01\x02\x03", "/single": "green",
		"/v/passwords/the/door": "sesame", "/v/pod/labels": `app="shop"`, "/v/pod/memory": "64", "/v/mixed/name": "full",
		"/v/mixed/c/shape": "round", "/v/mixed/s/door": "sesame",
	} {
		if inside := tr.exec(got, "main", "cat", file); inside != want {
			t.Errorf("%s has %q, want %q", file, inside, want)
		}
	}
	for _, scratch := range []string{"scratch", "memory"} {
		tr.exec(got, "main", "note", "/v/"+scratch+"/note", "mine")
	}
	if inside := tr.exec(got, "other", "cat", "/theirs/note"); inside != "mine\n" {
		t.Errorf("the other container sees %q", inside)
	}
	if mounts := tr.exec(got, "main", "cat", "/proc/mounts"); !strings.Contains(mounts, "tmpfs /v/memory tmpfs") ||
		!strings.Contains(mounts, "tmpfs /v/passwords tmpfs") {
		t.Errorf("memory is not in %s", mounts)
	}
	tr.mustAuthenticate(tr.exec(got, "main", "cat", "/v/mixed/token"), got)
}

// everyVolume is one volume of each kind that a node can make by itself.
func everyVolume(machine string) []v1.Volume {
	volume := func(name string, source v1.VolumeSource) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: source}
	}
	size := resource.MustParse("1Mi")
	megabytes := &v1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.memory", Divisor: size}
	return []v1.Volume{
		volume("scratch", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		volume("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &size}}),
		volume("machine", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: machine}}),
		volume("settings", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: named("settings")}}),
		volume("passwords", v1.VolumeSource{Secret: &v1.SecretVolumeSource{
			SecretName: "passwords", Items: []v1.KeyToPath{{Key: "door", Path: "the/door"}},
		}}),
		volume("pod", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: fieldRef("metadata.labels")}, {Path: "memory", ResourceFieldRef: megabytes},
		}}}),
		volume("mixed", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(600))}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "name", FieldRef: fieldRef("metadata.name")}}}},
			{ConfigMap: &v1.ConfigMapProjection{
				LocalObjectReference: named("settings"), Items: []v1.KeyToPath{{Key: "shape", Path: "c/shape"}},
			}},
			{Secret: &v1.SecretProjection{LocalObjectReference: named("passwords"), Items: []v1.KeyToPath{{Key: "door", Path: "s/door"}}}},
		}}}),
	}
}

// mustAuthenticate fails the test unless the API server takes the token for the pod's service account.
func (tr *trial) mustAuthenticate(token string, p *v1.Pod) {
	tr.t.Helper()
	config := rest.AnonymousClientConfig(tr.cluster.AdminConfig())
	config.BearerToken = token
	review, err := recorder.NewClient(tr.t, config).AuthenticationV1().SelfSubjectReviews().Create(
		tr.t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		tr.t.Fatal(err)
	}
	who := review.Status.UserInfo
	if who.Username != "system:serviceaccount:"+tr.Namespace+":default" ||
		fmt.Sprint(who.Extra["authentication.kubernetes.io/pod-uid"]) != fmt.Sprintf("[%s]", p.UID) {
		tr.t.Errorf("the token stands for %+v", who)
	}
}

func TestEveryKindOfVariableIsSeenInside(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	tr.createObjects()
	c := runs("main", "pause")
	c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
	c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
	c.EnvFrom = []v1.EnvFromSource{
		{Prefix: "S_", ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: named("settings")}},
		{SecretRef: &v1.SecretEnvSource{LocalObjectReference: named("passwords")}},
	}
	from := func(name string, source v1.EnvVarSource) v1.EnvVar { return v1.EnvVar{Name: name, ValueFrom: &source} }
	c.Env = []v1.EnvVar{
		{Name: "PLAIN", Value: "1"}, {Name: "REFERS", Value: "$(PLAIN)$(IP)$$(PLAIN)"},
		from("IP", v1.EnvVarSource{FieldRef: fieldRef("status.podIP")}),
		{Name: "AT", Value: "http://$(IP)"}, from("NODE", v1.EnvVarSource{FieldRef: fieldRef("spec.nodeName")}),
		from("HOST", v1.EnvVarSource{FieldRef: fieldRef("status.hostIP")}),
		from("TEAM", v1.EnvVarSource{FieldRef: fieldRef("metadata.labels['team']")}),
		from("COLOUR", v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: named("settings"), Key: "colour"}}),
		from("DOOR", v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: named("passwords"), Key: "door"}}),
		from("CPU", v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "requests.cpu", Divisor: resource.MustParse("1m")}}),
		from("MEMORY", v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.memory"}}),
		from("NONE", v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
			LocalObjectReference: named("absent"), Key: "x", Optional: new(true),
		}}),
	}
	p := newPod("env", c)
	p.Labels = map[string]string{"team": "shop"}
	tr.bind(p)
	got := tr.Await("env", "ready", isReady)
	inside := "\n" + tr.exec(got, "main", "env")
	for _, want := range []string{
		"S_colour=green", "S_shape=round", "door=sesame", "PLAIN=1", "REFERS=1$(IP)$(PLAIN)", "IP=" + got.Status.PodIP,
		"AT=http://" + got.Status.PodIP, "NODE=" + tr.NodeName, "HOST=" + got.Status.HostIP, "TEAM=shop", "COLOUR=green", "DOOR=sesame",
		"CPU=100", "MEMORY=67108864", "STORE_SERVICE_PORT=80", "HOSTNAME=env",
	} {
		if !strings.Contains(inside, "\n"+want+"\n") {
			t.Errorf("no %s in %s", want, inside)
		}
	}
	if strings.Contains(inside, "\nNONE=") {
		t.Error("a variable without a value is there")
	}
}

func TestAConfigMapThatChangesArrives(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	tr.createObjects()
	p := newPod("reader", runs("main", "pause"))
	p.Spec.Volumes = []v1.Volume{{Name: "settings", VolumeSource: v1.VolumeSource{
		ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: named("settings")},
	}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "settings", MountPath: "/settings"}}
	tr.bind(p)
	got := tr.Await("reader", "ready", isReady)
	tr.kubectl("patch", "configmap", "settings", "--patch", `{"data":{"colour":"blue","size":"xl","shape":null}}`)
	// Nothing tells the node of it: the pod's next turn brings it, which is at most a minute and a half away.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for tr.exec(got, "main", "cat", "/settings/colour") != "blue" {
		select {
		case <-ctx.Done():
			t.Fatal("the new content did not arrive")
		case <-time.After(time.Second):
		}
	}
	if size := tr.exec(got, "main", "cat", "/settings/size"); size != "xl" {
		t.Errorf("the new file has %q", size)
	}
	if now := tr.Await("reader", "as before", isReady); containerOf(now, "main").RestartCount != 0 {
		t.Error("it was restarted")
	}
}

func TestAPodWaitsForWhatItRefersTo(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	c := runs("main", "env")
	c.EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: named("settings")}}}
	tr.bind(newPod("early", c))
	tr.Await("early", "waiting for a config map", func(p *v1.Pod) bool {
		waiting := containerOf(p, "main").State.Waiting
		return waiting != nil && waiting.Reason == "CreateContainerConfigError" && strings.Contains(waiting.Message, `"settings"`)
	})
	tr.createObjects()
	tr.Await("early", "started", func(p *v1.Pod) bool {
		c := containerOf(p, "main")
		return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
	})
}
