package cri_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/plan"
)

func TestEventsAndReasonsOfAStart(t *testing.T) {
	const about = "spec.containers{web}: "
	present := "Normal Pulled " + about + `Container image "web:1" already present on machine`
	cases := map[string]struct {
		call    string
		fault   fault
		change  func(*v1.Pod)
		reason  string
		message string
		events  []string
	}{
		"all goes well": {
			events: []string{present, "Normal Created " + about + "Container created", "Normal Started " + about + "Container started"},
		},
		"the runtime cannot make it": {
			call: "CreateContainer", fault: refuses(codes.Unknown, "no space left"), reason: "CreateContainerError", message: "no space left",
			events: []string{present, "Warning Failed " + about + "Error: no space left"},
		},
		"the runtime cannot start it": {
			call: "StartContainer", fault: refuses(codes.Unknown, "container-2 has no entrypoint"), reason: "RunContainerError",
			message: "container-2 has no entrypoint",
			events: []string{
				present, "Normal Created " + about + "Container created", "Warning Failed " + about + "Error: web has no entrypoint",
			},
		},
		"a variable cannot be had": {
			change: func(pod *v1.Pod) { pod.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{}} }, reason: "CreateContainerConfigError",
			message: `configmap "absent" not found`,
			events:  []string{present, "Warning Failed " + about + `Error: configmap "absent" not found`},
		},
		"a volume is not there": {
			change: func(pod *v1.Pod) {
				pod.Spec.Volumes = []v1.Volume{{Name: "missing"}}
				pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "missing", MountPath: "/m"}}
			},
			reason: "CreateContainerConfigError", message: "volume missing: volume missing is not mounted",
			events: []string{present, "Warning Failed " + about + "Error: volume missing: volume missing is not mounted"},
		},
		"the image is pulled": {
			change: func(pod *v1.Pod) { pod.Spec.Containers[0].Image = "web:2" },
			events: []string{
				"Normal Pulling " + about + `Pulling image "web:2"`, "Normal Pulled " + about + `Successfully pulled image "web:2" in 0s (0s including waiting). Image size: 2048 bytes.`,
				"Normal Created " + about + "Container created", "Normal Started " + about + "Container started",
			},
		},
		"the image cannot be pulled": {
			call: "PullImage", fault: refuses(codes.Unknown, "manifest unknown"), reason: "ErrImagePull", message: "manifest unknown",
			change: func(pod *v1.Pod) { pod.Spec.Containers[0].Image = "web:2" },
			events: []string{
				"Normal Pulling " + about + `Pulling image "web:2"`,
				"Warning Failed " + about + `Failed to pull image "web:2": manifest unknown`,
				"Warning Failed " + about + "Error: ErrImagePull",
			},
		},
		"the image may not be pulled": {
			change: func(pod *v1.Pod) {
				pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = "web:2", v1.PullNever
			},
			reason: "ErrImageNeverPull", message: `Container image "web:2" is not present with pull policy of Never`,
			events: []string{
				"Warning ErrImageNeverPull " + about + `Container image "web:2" is not present with pull policy of Never`,
				"Warning Failed " + about + "Error: ErrImageNeverPull",
			},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				pod := newPod()
				sandbox := w.sandbox(pod)
				if test.change != nil {
					test.change(pod)
				}
				if test.fault != nil {
					w.fake.next(test.call, test.fault)
				}
				err := w.StartContainer(w.Context(), pod, sandbox, first(pod))
				if reasonOf(err) != test.reason || (err != nil && err.Error() != test.message) {
					w.Errorf("it failed with %q: %v", reasonOf(err), err)
				}
				if diff := cmp.Diff(test.events, w.events()); diff != "" {
					w.Error(diff)
				}
			})
		})
	}
}

func TestASandboxThatCannotBeMadeIsTold(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.next("RunPodSandbox", refuses(codes.Unknown, "no network"))
		_, err := w.StartSandbox(w.Context(), newPod(), 0)
		if reasonOf(err) != "CreatePodSandboxError" || err.Error() != `Failed to create sandbox for pod "shop_prod(uid-1)": no network` {
			w.Errorf("it failed with %q: %v", reasonOf(err), err)
		}
		if diff := cmp.Diff([]string{"Warning FailedCreatePodSandBox : Failed to create pod sandbox: no network"}, w.events()); diff != "" {
			w.Error(diff)
		}
	})
}

func TestAFailedPostStartHookEndsTheContainer(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hi"}}}}
		})
		w.fake.exitCode = 9
		err := w.StartContainer(w.Context(), pod, w.sandbox(pod), first(pod))
		want := `Exec lifecycle hook ([hi]) for Container "web" in Pod "shop_prod(uid-1)" failed - error: command 'hi' exited with 9, message: "outerr"`
		if reasonOf(err) != "PostStartHookError" || err.Error() != want {
			w.Errorf("it failed with %q: %v", reasonOf(err), err)
		}
		if c := w.only(pod); c.State != observed.Exited {
			w.Errorf("the container is %v", c.State)
		}
		story := w.events()
		if diff := cmp.Diff([]string{
			"Warning FailedPostStartHook spec.containers{web}: PostStartHook failed",
			"Normal Killing spec.containers{web}: FailedPostStartHook",
		}, story[len(story)-2:]); diff != "" {
			w.Error(diff)
		}
	})
}

// HTTP hooks go over real sockets, which a bubble cannot have: this test runs outside of one.
func TestHTTPHooksAskTheContainer(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		asked = append(asked, request.Host+request.URL.Path+" "+request.Header.Get("Authorization"))
		answer.WriteHeader(http.StatusTeapot)
	}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	w := outside(t)
	pod := newPod(func(pod *v1.Pod) {
		pod.Spec.HostNetwork = true
		pod.Spec.Containers[0].Ports = []v1.ContainerPort{{Name: "http", ContainerPort: int32(number)}}
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
			Path: "/begun", Port: intstr.FromString("http"), Scheme: v1.URISchemeHTTPS,
			HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: "secret"}, {Name: "host", Value: "shop.test"}},
		}}}
	})
	if c := w.run(pod); c.State != observed.Running {
		t.Errorf("the container is %v", c.State)
	}
	if diff := cmp.Diff([]string{"shop.test/begun "}, asked); diff != "" {
		t.Error("a hook of HTTPS is asked in plain HTTP where there is no TLS, and then without secrets:", diff)
	}
	if story := w.events(); story[len(story)-1] != "Warning LifecycleHTTPFallback : request to HTTPS lifecycle hook 127.0.0.1:"+port+
		" got HTTP response, retry with HTTP succeeded" {
		t.Errorf("events: %q", story)
	}
}

func TestAnEphemeralContainerSeesTheProcessesOfItsTarget(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "web:1"}, TargetContainerName: "web",
			}}
		})
		target := w.run(pod)
		start := plan.Start{Container: (*v1.Container)(&pod.Spec.EphemeralContainers[0].EphemeralContainerCommon), Kind: derive.EphemeralContainer}
		if err := w.StartContainer(w.Context(), pod, target.SandboxID, start); err != nil {
			w.Fatal(err)
		}
		options := requests[*runtimeapi.CreateContainerRequest](w.fake)[1].Config.Linux.SecurityContext.NamespaceOptions
		if options.Pid != runtimeapi.NamespaceMode_TARGET || options.TargetId != target.ID.ID {
			w.Errorf("it sees %v of %q", options.Pid, options.TargetId)
		}
		w.fake.exit(target.ID.ID, 0)
		start.RestartCount = 1
		if err := w.StartContainer(w.Context(), pod, target.SandboxID, start); reasonOf(err) != "CreateContainerConfigError" {
			w.Errorf("without its target it failed with %v", err)
		}
	})
}

func TestAStopSignalThatTheRuntimeIgnoresIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod(func(pod *v1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{StopSignal: new(v1.SIGUSR1)}
		})
		if got := w.made(pod).StopSignal; got != runtimeapi.Signal_SIGUSR1 {
			w.Errorf("the signal is %v", got)
		}
		w.fake.mu.Lock()
		w.fake.forgetsSignals = true
		w.fake.mu.Unlock()
		start := first(pod)
		start.RestartCount = 1
		err := w.StartContainer(w.Context(), pod, w.sandbox(pod), start)
		if reasonOf(err) != "CreateContainerConfigError" || len(w.inspect(pod).Containers) != 1 {
			w.Errorf("it failed with %v and left %+v", err, w.inspect(pod).Containers)
		}
	})
}

func TestCallsAndStartsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	inWorld(t, func(w *world) {
		pod := newPod()
		w.fake.next("CreateContainer", refuses(codes.Unknown, "no"))
		if err := w.StartContainer(w.Context(), pod, w.sandbox(pod), first(pod)); err == nil {
			w.Error("no error")
		}
		w.run(pod)
	}, func(config *cri.Config) { config.Metrics = registry })
	for name, want := range map[string]int{
		"kubelet_started_pods_total": 1, "kubelet_started_containers_total": 1, "kubelet_started_containers_errors_total": 1,
		"kubelet_run_podsandbox_duration_seconds": 1, "kubelet_runtime_operations_errors_total": 1,
	} {
		if got, err := testutil.GatherAndCount(registry, name); err != nil || got != want {
			t.Errorf("%s has %d series: %v", name, got, err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	operations := map[string]bool{}
	for _, family := range families {
		if family.GetName() == "kubelet_runtime_operations_total" {
			for _, metric := range family.Metric {
				operations[metric.Label[0].GetValue()] = true
			}
		}
	}
	for _, want := range []string{"run_podsandbox", "podsandbox_status", "create_container", "list_containers", "image_status", "version"} {
		if !operations[want] {
			t.Errorf("no operation_type %q in %v", want, operations)
		}
	}
}

func TestASecondRuntimeOnOneRegistryIsAnError(t *testing.T) {
	registry := prometheus.NewRegistry()
	config := cri.Config{Endpoint: "unix:///x", Provisioner: provision{}, Root: "/pods", Metrics: registry}
	r, err := cri.New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var taken prometheus.AlreadyRegisteredError
	if _, err := cri.New(config); !errors.As(err, &taken) {
		t.Errorf("the error is %v", err)
	}
}
