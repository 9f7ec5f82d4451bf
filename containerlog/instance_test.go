package containerlog_test

import (
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/containerlog"
	"github.com/heraldnode/herald/observed"
)

func TestLOG1_Decode(t *testing.T) {
	cases := map[string]struct {
		query string
		want  *v1.PodLogOptions
		code  int
	}{
		"none":            {"", &v1.PodLogOptions{}, 0},
		"kube-apiserver":  {"follow=true&previous=true&timestamps=true", &v1.PodLogOptions{Follow: true, Previous: true, Timestamps: true}, 0},
		"booleans":        {"follow=1&previous=False&timestamps=0", &v1.PodLogOptions{Follow: true}, 0},
		"empty boolean":   {"follow", &v1.PodLogOptions{Follow: true}, 0},
		"numbers":         {"tailLines=0&limitBytes=1&sinceSeconds=2", &v1.PodLogOptions{TailLines: new(int64(0)), LimitBytes: new(int64(1)), SinceSeconds: new(int64(2))}, 0},
		"old tail":        {"tail=5&tailLines=7", &v1.PodLogOptions{TailLines: new(int64(5))}, 0},
		"all":             {"tail=all&tailLines=7", &v1.PodLogOptions{}, 0},
		"unknown":         {"color=red", &v1.PodLogOptions{}, 0},
		"time":            {"sinceTime=2026-01-02T12:00:00Z", &v1.PodLogOptions{SinceTime: new(metav1.NewTime(time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC).Local()))}, 0},
		"stream":          {"stream=Stderr", &v1.PodLogOptions{Stream: new("Stderr")}, 0},
		"bad number":      {"tailLines=x", nil, http.StatusBadRequest},
		"bad old tail":    {"tail=x&tailLines=7", nil, http.StatusBadRequest},
		"bad time":        {"sinceTime=yesterday", nil, http.StatusBadRequest},
		"negative tail":   {"tailLines=-1", nil, http.StatusUnprocessableEntity},
		"no bytes":        {"limitBytes=0", nil, http.StatusUnprocessableEntity},
		"no seconds":      {"sinceSeconds=0", nil, http.StatusUnprocessableEntity},
		"two since":       {"sinceSeconds=1&sinceTime=2026-01-02T12:00:00Z", nil, http.StatusUnprocessableEntity},
		"bad stream":      {"stream=stdin", nil, http.StatusUnprocessableEntity},
		"tail of stream":  {"stream=Stdout&tailLines=1", nil, http.StatusUnprocessableEntity},
		"tail of streams": {"stream=All&tailLines=1", &v1.PodLogOptions{Stream: new("All"), TailLines: new(int64(1))}, 0},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			query, err := url.ParseQuery(test.query)
			if err != nil {
				t.Fatal(err)
			}
			got, err := containerlog.ParseOptions(query)
			var response *containerlog.Error
			if test.code != 0 && (!errors.As(err, &response) || response.Code != test.code) || test.code == 0 && err != nil {
				t.Fatalf("got %v, want code %d", err, test.code)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// terminated, waiting and running are container states.
func terminated(id string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id}}
}

func waiting(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

var running = v1.ContainerState{Running: &v1.ContainerStateRunning{}}

// TestLOG12_Instance has a log for each of three instances: 1 is the oldest, with restart count 4.
func TestLOG12_Instance(t *testing.T) {
	cases := map[string]struct {
		status   v1.ContainerStatus
		previous bool
		want     string // log or message
	}{
		"running":            {v1.ContainerStatus{State: running, ContainerID: "test://3", RestartCount: 6}, false, "log 6\n"},
		"terminated":         {v1.ContainerStatus{State: terminated("test://3"), RestartCount: 6}, false, "log 6\n"},
		"next did not start": {v1.ContainerStatus{State: terminated(""), LastTerminationState: terminated("test://3"), RestartCount: 6}, false, "log 6\n"},
		"after a crash":      {v1.ContainerStatus{State: waiting("CrashLoopBackOff"), LastTerminationState: terminated("test://3"), RestartCount: 6}, false, "log 6\n"},
		"previous": {v1.ContainerStatus{
			State: running, ContainerID: "test://3", LastTerminationState: terminated("test://2"), RestartCount: 6,
		}, true, "log 5\n"},
		"previous after a crash": {v1.ContainerStatus{State: waiting("CrashLoopBackOff"), LastTerminationState: terminated("test://3"), RestartCount: 6}, true, "log 6\n"},
		"no previous":            {v1.ContainerStatus{State: running, ContainerID: "test://3"}, true, `previous terminated container "web" in pod "web-1" not found`},
		"previous without ID":    {v1.ContainerStatus{State: running, LastTerminationState: terminated("")}, true, `previous terminated container "web" in pod "web-1" not found`},
		"terminated without ID":  {v1.ContainerStatus{State: terminated("")}, false, `container "web" in pod "web-1" is terminated`},
		"waiting without ID":     {v1.ContainerStatus{State: waiting("x"), LastTerminationState: terminated("")}, false, `container "web" in pod "web-1" is terminated`},
		"LOG-13 creating":        {v1.ContainerStatus{State: waiting("ContainerCreating")}, false, `container "web" in pod "web-1" is waiting to start: ContainerCreating`},
		"LOG-13 pull":            {v1.ContainerStatus{State: waiting("ErrImagePull")}, false, `container "web" in pod "web-1" is waiting to start: image can't be pulled`},
		"LOG-13 back-off":        {v1.ContainerStatus{State: waiting("ImagePullBackOff")}, false, `container "web" in pod "web-1" is waiting to start: trying and failing to pull image`},
		"unknown":                {v1.ContainerStatus{}, false, `container "web" in pod "web-1" is waiting to start - no logs yet`},
		"LOG-14 gone": {v1.ContainerStatus{
			State: running, ContainerID: "test://9", RestartCount: 9,
		}, false, "unable to retrieve container logs for test://9: its log file is gone"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			for attempt := 4; attempt < 7; attempt++ {
				n.write(n.path("web", attempt), entries("0 stdout F log "+string(rune('0'+attempt))))
			}
			pod := newPod()
			test.status.Name = "web"
			pod.Status.ContainerStatuses = []v1.ContainerStatus{test.status}
			if got := n.readPod(pod, v1.PodLogOptions{Container: "web", Previous: test.previous}); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// readPod returns the log, or the message of the error.
func (n *node) readPod(pod *v1.Pod, options v1.PodLogOptions) string {
	n.t.Helper()
	stream, err := n.logs.Open(n.t.Context(), pod, &options)
	if err != nil {
		return err.Error()
	}
	defer stream.Close()
	return n.copy(stream)
}

func TestLOG4_UnknownContainer(t *testing.T) {
	n := newNode(t)
	_, err := n.open(&v1.PodLogOptions{Container: "other"})
	var response *containerlog.Error
	if !errors.As(err, &response) || *response != (containerlog.Error{Code: 404, Message: `container "other" not found in pod "web-1"`}) {
		t.Errorf("got %v", err)
	}
	for _, container := range []string{"init", "debug"} {
		_, err := n.open(&v1.PodLogOptions{Container: container})
		if !errors.As(err, &response) || response.Code != 400 || err.Error() != `container "`+container+`" in pod "web-1" is not available` {
			t.Errorf("LOG-10: got %v", err)
		}
	}
}

func TestLOG14_Gone(t *testing.T) {
	n := newNode(t)
	_, err := n.open(&v1.PodLogOptions{})
	var response *containerlog.Error
	want := containerlog.Error{Code: http.StatusBadRequest, Message: "unable to retrieve container logs for test://1: its log file is gone"}
	if !errors.As(err, &response) || *response != want {
		t.Errorf("got %v, want %v", err, want.Message)
	}
}

// TestLOG15_FileCounts finds the log by the observed restart count, by the path that the runtime reports, and in the directory.
func TestLOG15_FileCounts(t *testing.T) {
	t.Run("observed", func(t *testing.T) {
		n := newNode(t)
		n.set("1", 3, observed.Exited)
		n.write(n.path("web", 0), entries("0 stdout F other"))
		n.write(n.path("web", 3), entries("0 stdout F log"))
		if got := n.read(v1.PodLogOptions{}); got != "log\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("reported", func(t *testing.T) {
		n := newNode(t)
		path := filepath.Join(n.dir, "elsewhere", "x.log")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		n.write(path, entries("0 stdout F log"))
		n.reported = map[string]string{"1": path}
		if got := n.read(v1.PodLogOptions{}); got != "log\n" {
			t.Errorf("got %q", got)
		}
		n.reported["1"] = "/etc/passwd"
		if _, err := n.open(&v1.PodLogOptions{}); err == nil {
			t.Error("opened a file outside of the directory")
		}
	})
	t.Run("directory", func(t *testing.T) {
		n := newNode(t)
		n.write(n.path("web", 2), entries("0 stdout F previous")) // a restart without an instance
		pod := newPod()
		pod.Status.ContainerStatuses[0].RestartCount = 4
		pod.Status.ContainerStatuses[0].LastTerminationState = terminated("test://0")
		if got := n.readPod(pod, v1.PodLogOptions{Container: "web", Previous: true}); got != "previous\n" {
			t.Errorf("got %q", got)
		}
		if got := n.readPod(pod, v1.PodLogOptions{Container: "web"}); got != "unable to retrieve container logs for test://1: its log file is gone" {
			t.Errorf("got %q: the log of another instance", got)
		}
	})
}
