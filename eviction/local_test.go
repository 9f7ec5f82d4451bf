package eviction_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/heraldtest"
)

const mebi = 1 << 20

func emptyDir(name, limit string, medium v1.StorageMedium) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		source := &v1.EmptyDirVolumeSource{Medium: medium}
		if limit != "" {
			source.SizeLimit = new(resource.MustParse(limit))
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: source}})
	}
}

func container(name, limit string) v1.Container {
	c := v1.Container{Name: name}
	if limit != "" {
		c.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(limit)}
	}
	return c
}

func containers(all ...v1.Container) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.Containers = all }
}

func TestCheckLocalLimits(t *testing.T) {
	volumes := func(bytes int64) eviction.Usage { return eviction.Usage{Volumes: map[string]int64{"v": bytes}} }
	tests := map[string]struct {
		pod     []func(*v1.Pod)
		usage   eviction.Usage
		signal  string
		message string
	}{
		"EVI-25, above": {
			pod: []func(*v1.Pod){emptyDir("v", "1Mi", "")}, usage: volumes(mebi + 1),
			signal: "emptydirfs.limit", message: `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `,
		},
		"EVI-25, at the limit": {pod: []func(*v1.Pod){emptyDir("v", "1Mi", "")}, usage: volumes(mebi)},
		"EVI-25, no limit":     {pod: []func(*v1.Pod){emptyDir("v", "", "")}, usage: volumes(mebi)},
		"EVI-25, zero":         {pod: []func(*v1.Pod){emptyDir("v", "0", "")}, usage: volumes(mebi)},
		"EVI-26, one limit binds all": {
			pod:    []func(*v1.Pod){containers(container("a", "1Mi"), container("b", "")), emptyDir("v", "", "")},
			usage:  eviction.Usage{Containers: map[string]int64{"b": mebi / 2}, Volumes: map[string]int64{"v": mebi / 2}, Files: 1},
			signal: "ephemeralpodfs.limit", message: "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ",
		},
		"EVI-26, sum of limits": {
			pod:   []func(*v1.Pod){containers(container("a", "1Mi"), container("b", "1Mi"))},
			usage: eviction.Usage{Containers: map[string]int64{"a": mebi, "b": mebi}},
		},
		"EVI-27": {
			pod:    []func(*v1.Pod){containers(container("a", "1Mi"), container("b", "10Mi"))},
			usage:  eviction.Usage{Containers: map[string]int64{"a": mebi + 1}},
			signal: "ephemeralcontainerfs.limit", message: `Container a exceeded its local ephemeral storage limit "1Mi". `,
		},
		"EVI-27, init containers are not asked": {
			pod: []func(*v1.Pod){containers(container("a", "10Mi")), func(pod *v1.Pod) {
				pod.Spec.InitContainers = []v1.Container{container("init", "1Mi")}
			}},
			usage: eviction.Usage{Containers: map[string]int64{"init": 2 * mebi}},
		},
		"no limit at all": {usage: eviction.Usage{Containers: map[string]int64{"a": 1 << 40}, Files: 1 << 40}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got eviction.Violation
			if violation := eviction.CheckLocalLimits(heraldtest.NewPod("web", test.pod...), test.usage); violation != nil {
				got = *violation
			}
			if want := (eviction.Violation{Signal: test.signal, Message: test.message}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	tests := map[string]struct {
		pod                 func(*v1.Pod)
		volumes, containers bool
	}{
		"none":             {func(*v1.Pod) {}, false, false},
		"volume on disk":   {emptyDir("v", "1Mi", ""), true, false},
		"volume in memory": {emptyDir("v", "1Mi", v1.StorageMediumMemory), false, false},
		"container":        {containers(container("a", "1Mi")), false, true},
	}
	for name, test := range tests {
		pod := heraldtest.NewPod("web", test.pod)
		if eviction.LimitsVolumes(pod) != test.volumes || eviction.LimitsContainers(pod) != test.containers {
			t.Errorf("%s: got %v, %v", name, eviction.LimitsVolumes(pod), eviction.LimitsContainers(pod))
		}
	}
}

func TestBUG146_VolumeWithoutFigure(t *testing.T) {
	pod := heraldtest.NewPod("web", emptyDir("v", "1Mi", ""), containers(container("a", "1Mi")))
	if violation := eviction.CheckLocalLimits(pod, eviction.Usage{}); violation != nil {
		t.Errorf("got %+v", violation)
	}
}
