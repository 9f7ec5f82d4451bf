package nodeagent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/heraldtest/runtimesuite"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/process"
)

// kubeletUID is a UID as a kubelet computes it.
const kubeletUID = "2f1c0d6d0a1b4c5d8e9f00112233aabb"

// startRuntime starts a CRI server and lets the agent use it.
func startRuntime(t *testing.T, config *nodeagent.Config) *cri.Runtime {
	t.Helper()
	dir := t.TempDir()
	server, err := process.New(process.Config{Root: dir + "/runtime", Socket: dir + "/cri.sock", Shim: []string{"/proc/self/exe"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	config.Runtime, config.ContainerRuntimeEndpoint, config.PodLogsDir = nodeagent.RuntimeCRI, "unix://"+dir+"/cri.sock", dir+"/logs/pods"
	config.NoCgroupsPerQOS = true // the test must not change the machine's cgroups
	runtime, err := cri.New(cri.Config{
		Endpoint: config.ContainerRuntimeEndpoint, Provisioner: runtimesuite.Provisioner{}, Root: dir + "/pods", LogDir: config.PodLogsDir,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := runtime.Close(); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the runtime to respond", func() bool {
		_, _, err := runtime.Version(ctx)
		return err == nil
	})
	return runtime
}

// startedByKubelet creates the sandbox of the pod of the manifest job.
func startedByKubelet(t *testing.T, runtime *cri.Runtime, seen time.Time, source podid.Source) {
	t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "job-n1", Namespace: "default", UID: kubeletUID, Annotations: map[string]string{
				podid.SourceAnnotation: string(source), podid.HashAnnotation: kubeletUID, podid.SeenAnnotation: seen.Format(time.RFC3339Nano),
			},
		},
		Spec: v1.PodSpec{HostNetwork: true},
	}
	if _, err := runtime.StartSandbox(t.Context(), pod, 0); err != nil {
		t.Fatal(err)
	}
}

// staticUID runs an agent and returns the UID of its only static pod.
func staticUID(t *testing.T, config nodeagent.Config) (uid string) {
	t.Helper()
	run(t, config, func(n *nodeagent.NodeAgent) {
		eventually(t, "the static pod to end", func() bool {
			pods := n.Agent.LocalPods()
			if len(pods) != 1 || pods[0].Status.Phase != v1.PodSucceeded {
				return false
			}
			uid = string(pods[0].UID)
			if hash := podid.HashOf(pods[0]); hash != uid {
				t.Errorf("got hash %s of pod %s", hash, uid)
			}
			return true
		})
	})
	return uid
}

func TestStaticPod_KeepsUIDOfKubelet(t *testing.T) {
	tests := map[string]struct {
		source      podid.Source
		seen        time.Duration // after the last change of the manifest
		replace     [2]string
		wantAdopted bool
	}{
		"unchanged manifest":         {source: podid.File, seen: time.Millisecond, wantAdopted: true},
		"changed manifest":           {source: podid.File, seen: -time.Millisecond},
		"pod of another source":      {source: podid.API, seen: time.Millisecond},
		"UID in the manifest":        {source: podid.File, seen: time.Millisecond, replace: [2]string{"{name: job}", "{name: job, uid: mine}"}},
		"pod with another namespace": {source: podid.File, seen: time.Millisecond, replace: [2]string{"{name: job}", "{name: job, namespace: shop}"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := newConfig(t, strings.Replace(job, test.replace[0], test.replace[1], 1))
			runtime := startRuntime(t, &config)
			info, err := os.Stat(filepath.Join(config.StaticPodPath, "a.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			startedByKubelet(t, runtime, info.ModTime().Add(test.seen), test.source)
			if uid := staticUID(t, config); (uid == kubeletUID) != test.wantAdopted {
				t.Errorf("got UID %s, want that of the kubelet: %t", uid, test.wantAdopted)
			}
		})
	}
}

// The UID does not change when the evidence is gone.
func TestStaticPod_KeepsAdoptedUID(t *testing.T) {
	config := newConfig(t, job)
	runtime := startRuntime(t, &config)
	startedByKubelet(t, runtime, time.Now().Add(time.Millisecond), podid.File)
	if uid := staticUID(t, config); uid != kubeletUID {
		t.Fatalf("got UID %s, want that of the kubelet", uid)
	}
	if err := runtime.RemovePod(t.Context(), kubeletUID); err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(config.StaticPodPath, "a.yaml")
	if err := os.Chtimes(manifest, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if uid := staticUID(t, config); uid != kubeletUID {
		t.Errorf("after a touch: got UID %s", uid)
	}
	if err := os.WriteFile(manifest, []byte(strings.Replace(job, "name: main", "name: edited", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if uid := staticUID(t, config); uid == kubeletUID {
		t.Error("after an edit: the UID is the same")
	}
}
