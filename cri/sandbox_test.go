package cri_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

func TestF22_LostResponse(t *testing.T) {
	for _, method := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		t.Run(method, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				h.fake.inject(method, losesResponse)
				c := h.startPod(newPod())
				if c.State != observed.Running {
					h.Errorf("got container state %v", c.State)
				}
				if sandboxes := h.inspect(newPod()).Sandboxes; len(sandboxes) != 1 {
					h.Errorf("got %d sandboxes, want 1", len(sandboxes))
				}
			})
		})
	}
}

func TestF15_NameReserved(t *testing.T) {
	for name, message := range map[string]string{
		"containerd": `failed to reserve sandbox name "web_0": name "web_0" is reserved for "4f5e"`,
		"CRI-O":      "error reserving pod name web_0 for id 4f5e: name is reserved",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				h.fake.inject("RunPodSandbox", fails(codes.Unknown, message))
				_, err := h.StartSandbox(h.Context(), newPod(), 0)
				if delay := retryAfter(err); delay != time.Second {
					h.Errorf("got retry after %v, want 1s: %v", delay, err)
				}
				if events := h.events(); len(events) > 0 {
					h.Errorf("got events %q, want none", events)
				}
			})
		})
	}
}

func TestStartSandbox_Failure(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.inject("RunPodSandbox", fails(codes.Unknown, "no network"))
		_, err := h.StartSandbox(h.Context(), newPod(), 0)
		if waitingReason(err) != "CreatePodSandboxError" || err.Error() != `Failed to create sandbox for pod "shop_prod(uid-1)": no network` {
			h.Errorf("got %s: %v", waitingReason(err), err)
		}
		if diff := cmp.Diff([]string{"Warning FailedCreatePodSandBox : Failed to create pod sandbox: no network"}, h.events()); diff != "" {
			h.Error(diff)
		}
	})
}

func TestStartSandbox_Config(t *testing.T) {
	burstable := newPod(func(pod *v1.Pod) {
		pod.Spec.DNSPolicy = v1.DNSClusterFirst
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	})
	inBubble(t, func(h *harness) {
		h.writeFile(h.root+"/resolv.conf", "nameserver 192.0.2.53\nsearch node.test\noptions rotate\n")
		h.startSandbox(burstable)
		request := requests[*runtimeapi.RunPodSandboxRequest](h.fake)[0]
		if !strings.HasSuffix(request.Config.LogDirectory, "/logs/prod_shop_uid-1") {
			h.Errorf("got log directory %s", request.Config.LogDirectory)
		}
		// The fake does not report a cgroup driver.
		if got := request.Config.Linux.CgroupParent; got != "/kubepods/burstable/poduid-1" {
			h.Errorf("got cgroup parent %q", got)
		}
		dns := request.Config.DnsConfig
		if !slices.Equal(dns.Servers, []string{"192.0.2.53"}) || !slices.Equal(dns.Searches, []string{"node.test"}) ||
			!slices.Equal(dns.Options, []string{"rotate"}) {
			h.Errorf("got DNS configuration %v", dns)
		}
		want := []string{`Warning MissingClusterDNS : pod: "shop_prod(uid-1)". no ClusterDNS is configured, so "ClusterFirst" ` +
			`is not possible. Falling back to "Default" policy.`}
		if diff := cmp.Diff(want, h.events()); diff != "" {
			h.Error(diff)
		}
	}, func(config *cri.Config) { config.CgroupParent = "/kubepods" })
	inBubble(t, func(h *harness) {
		h.startSandbox(burstable)
		config := requests[*runtimeapi.RunPodSandboxRequest](h.fake)[0].Config
		if got := config.Linux.CgroupParent; got != "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poduid_1.slice" {
			h.Errorf("systemd: got cgroup parent %q", got)
		}
		if !slices.Equal(config.DnsConfig.Servers, []string{"10.96.0.10"}) || !slices.Contains(config.DnsConfig.Searches, "prod.svc.c.test") {
			h.Errorf("cluster DNS: got %v", config.DnsConfig)
		}
	}, func(config *cri.Config) {
		config.CgroupParent, config.CgroupDriver = "/kubepods", "systemd"
		config.ClusterDomain, config.ClusterDNS = "c.test", []netip.Addr{netip.MustParseAddr("10.96.0.10")}
	})
}

func TestStartSandbox_Unsupported(t *testing.T) {
	pod := newPod(func(pod *v1.Pod) {
		pod.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net.core.somaxconn", Value: "1024"}}}
	})
	inBubble(t, func(h *harness) {
		if err := h.Unsupported(pod); err == nil || !strings.Contains(err.Error(), "spec.securityContext.sysctls[0]: ") {
			h.Errorf("got error %v", err)
		}
		if _, err := h.StartSandbox(h.Context(), pod, 0); waitingReason(err) != "CreatePodSandboxError" {
			h.Errorf("got error %v", err)
		}
	})
	inBubble(t, func(h *harness) { h.startSandbox(pod) }, func(config *cri.Config) {
		config.AllowedUnsafeSysctls = []string{"net.core.*"}
	})
}

// runtimeClasses are the handlers of runtime classes, by name.
type runtimeClasses map[string]string

func (c runtimeClasses) RuntimeHandler(_ context.Context, pod *v1.Pod) (string, error) {
	handler, found := c[*pod.Spec.RuntimeClassName]
	if !found {
		return "", errors.New("no such class")
	}
	return handler, nil
}

func TestStartSandbox_RuntimeClass(t *testing.T) {
	reported := []*runtimeapi.RuntimeHandler{{Name: ""}, {Name: "runc"}, {Name: "kata"}}
	for name, test := range map[string]struct {
		class   string
		classes cri.RuntimeClasses
		handled []*runtimeapi.RuntimeHandler
		want    string
		wantErr string
	}{
		"default":               {classes: runtimeClasses{"": "kata"}},
		"class":                 {class: "fast", classes: runtimeClasses{"fast": "kata"}, want: "kata"},
		"no such class":         {class: "fast", classes: runtimeClasses{}, handled: reported, wantErr: "no such class"},
		"handler":               {class: "kata", handled: reported, want: "kata"},
		"no such handler":       {class: "fast", handled: reported, wantErr: "it must be one of the runtime's handlers: runc, kata"},
		"runtime without names": {class: "fast", wantErr: "the runtime reports none; remove the field"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod(func(pod *v1.Pod) { pod.Spec.RuntimeClassName = &test.class })
			inBubble(t, func(h *harness) {
				h.fake.status.RuntimeHandlers = test.handled
				if _, err := h.StartSandbox(h.Context(), pod, 0); test.wantErr != "" {
					if waitingReason(err) != "CreatePodSandboxError" || !strings.Contains(err.Error(), test.wantErr) {
						h.Errorf("got error %v, want %s", err, test.wantErr)
					}
					return
				} else if err != nil {
					h.Fatal(err)
				}
				if got := requests[*runtimeapi.RunPodSandboxRequest](h.fake)[0].RuntimeHandler; got != test.want {
					h.Errorf("got handler %q, want %q", got, test.want)
				}
			}, func(config *cri.Config) { config.RuntimeClasses = test.classes })
		})
	}
}

// criconfig tests all names and fields.
func TestStartSandbox_EscapingNames(t *testing.T) {
	for field, mutate := range map[string]func(*v1.Pod){
		"metadata.uid":            func(pod *v1.Pod) { pod.UID = "../../etc" },
		"spec.containers[0].name": func(pod *v1.Pod) { pod.Spec.Containers[0].Name = "../../etc" },
	} {
		inBubble(t, func(h *harness) {
			_, err := h.StartSandbox(h.Context(), newPod(mutate), 0)
			if err == nil || !strings.Contains(err.Error(), field+": ") {
				h.Errorf("%s: got error %v", field, err)
			}
			if created := listFiles(h.T, h.root); len(created) > 0 {
				h.Errorf("%s: got files %v", field, created)
			}
		})
	}
}

func TestStartSandbox_GroupsPolicy(t *testing.T) {
	pod := newPod(func(pod *v1.Pod) {
		pod.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicyStrict)}
	})
	inBubble(t, func(h *harness) {
		if _, err := h.StartSandbox(h.Context(), pod, 0); err == nil || !strings.Contains(err.Error(), "supplementalGroupsPolicy") {
			h.Errorf("got error %v", err)
		}
		h.fake.status.Features = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
		if got := h.createdConfig(pod).Linux.SecurityContext.SupplementalGroupsPolicy; got != runtimeapi.SupplementalGroupsPolicy_Strict {
			h.Errorf("got policy %v", got)
		}
	})
}

// Where cgroupRoot is not set either, sandboxes get a parent in the form of the runtime's driver.
func TestCGR1_CgroupDriver(t *testing.T) {
	const systemdConfig = `{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"options":{"SystemdCgroup":true}}}}}`
	reports := func(driver runtimeapi.CgroupDriver) fault {
		return func(context.Context, func() (any, error)) (any, error) {
			return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
		}
	}
	tests := map[string]struct {
		reported   fault // nil is a runtime without RuntimeConfig
		configured string
		info       string
		want       string
	}{
		"reported systemd":           {reported: reports(runtimeapi.CgroupDriver_SYSTEMD), configured: "cgroupfs", want: "systemd"},
		"reported cgroupfs":          {reported: reports(runtimeapi.CgroupDriver_CGROUPFS), configured: "systemd", info: systemdConfig, want: "cgroupfs"},
		"configured":                 {configured: "cgroupfs", info: systemdConfig, want: "cgroupfs"},
		"containerd's configuration": {info: systemdConfig, want: "systemd"},
		"other configuration":        {info: `[1]`, want: "cgroupfs"},
		"nothing known":              {want: "cgroupfs"},
	}
	parents := map[string]string{
		"systemd":  "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poduid_1.slice",
		"cgroupfs": "/kubepods/besteffort/poduid-1",
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				if test.reported != nil {
					h.fake.inject("RuntimeConfig", test.reported)
				}
				if test.info != "" {
					h.fake.status.Info = map[string]string{"config": test.info}
				}
				h.startSandbox(newPod())
				config := requests[*runtimeapi.RunPodSandboxRequest](h.fake)[0].Config
				if got := config.Linux.CgroupParent; got != parents[test.want] {
					h.Errorf("got parent %q, want %q", got, parents[test.want])
				}
			}, func(config *cri.Config) { config.CgroupParent, config.CgroupDriver = "/kubepods", test.configured })
		})
	}
}

// fakeCgroups records calls and fails if err is set.
type fakeCgroups struct {
	calls            []string
	err, killErr     error
	current, desired cgroup.Resources // of every pod
}

func (c *fakeCgroups) ReadPod(context.Context, *v1.Pod) (current, desired cgroup.Resources, err error) {
	return c.current, c.desired, nil
}

func (c *fakeCgroups) UpdatePod(_ context.Context, _ *v1.Pod, values cgroup.Resources) error {
	c.calls = append(c.calls, fmt.Sprintf("update pod %s", formatValues(values)))
	return c.err
}

func formatValues(values cgroup.Resources) string {
	switch {
	case values.Memory != nil:
		return fmt.Sprint("memory ", *values.Memory)
	case values.CPUQuota != nil:
		return fmt.Sprint("quota ", *values.CPUQuota)
	default:
		return fmt.Sprint("shares ", *values.CPUShares)
	}
}

func (c *fakeCgroups) EnsurePod(_ context.Context, pod *v1.Pod) error {
	c.calls = append(c.calls, "ensure "+string(pod.UID))
	return c.err
}

func (c *fakeCgroups) KillContainers(_ context.Context, uid podid.UID, ids []string) error {
	c.calls = append(c.calls, fmt.Sprintf("kill %s %v", uid, ids))
	return c.killErr
}

func (c *fakeCgroups) RemovePod(_ context.Context, uid podid.UID) error {
	c.calls = append(c.calls, "remove "+string(uid))
	return c.err
}

func TestCGR19_PodCgroup(t *testing.T) {
	cgroups := &fakeCgroups{}
	use := func(config *cri.Config) { config.CgroupParent, config.Cgroups = "/kubepods", cgroups }
	inBubble(t, func(h *harness) {
		h.startSandbox(newPod())
		if err := h.RemovePod(h.Context(), "uid-1"); err != nil {
			h.Error(err)
		}
		if want := []string{"ensure uid-1", "remove uid-1"}; !slices.Equal(cgroups.calls, want) {
			h.Errorf("got calls %q, want %q", cgroups.calls, want)
		}
	}, use)
	cgroups.err = errors.New("no space left on device")
	inBubble(t, func(h *harness) {
		if _, err := h.StartSandbox(h.Context(), newPod(), 0); err == nil {
			h.Error("the sandbox was started without the pod's cgroup")
		}
		want := "Warning FailedCreatePodContainer : unable to ensure pod container exists: no space left on device"
		if events := h.events(); !slices.Contains(events, want) {
			h.Errorf("got events %q, want %q", events, want)
		}
		if got := len(requests[*runtimeapi.RunPodSandboxRequest](h.fake)); got > 0 {
			h.Errorf("got %d requests, want none", got)
		}
		if err := h.RemovePod(h.Context(), "uid-1"); err == nil { // the caller retries
			h.Error("a cgroup that could not be removed was not reported")
		}
	}, use)
}
