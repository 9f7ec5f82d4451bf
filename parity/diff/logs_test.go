package diff_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-client/pkg/logs"

	"github.com/heraldnode/herald/containerlog"
)

// logFile is a log that both readers read.
type logFile struct {
	t    *testing.T
	dir  string
	ours *containerlog.Logs
}

func newLogFile(t *testing.T) *logFile {
	f := &logFile{t: t, dir: t.TempDir()}
	var err error
	if f.ours, err = containerlog.New(containerlog.Config{Dir: f.dir, Paths: f}); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *logFile) path() string { return filepath.Join(f.dir, "0.log") }

func (f *logFile) LogPath(*v1.Pod, string, int) string { return f.path() }

func (f *logFile) ContainerLogPath(context.Context, string) (string, error) {
	return "", errors.New("not found")
}

func (f *logFile) write(name, content string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// read returns what both readers make of the log.
func (f *logFile) read(options v1.PodLogOptions) (theirs, ours string) {
	f.t.Helper()
	var output bytes.Buffer
	stdout, stderr := io.Writer(&output), io.Writer(&output)
	if options.Stream != nil && *options.Stream == v1.LogStreamStdout {
		stderr = nil
	}
	if options.Stream != nil && *options.Stream == v1.LogStreamStderr {
		stdout = nil
	}
	kubelet := &logs.LogOptions{TailLines: options.TailLines, LimitBytes: options.LimitBytes, Timestamp: options.Timestamps}
	if options.SinceTime != nil {
		kubelet.Since = options.SinceTime.Time
	}
	if err := logs.ReadLogs(f.t.Context(), f.path(), "", kubelet, nil, stdout, stderr); err != nil {
		f.t.Fatalf("the kubelet's reader: %v", err)
	}
	theirs = output.String()
	output.Reset()
	options.Container = "web"
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default", UID: "uid"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "web"}}},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "web", ContainerID: "test://1", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		}}},
	}
	stream, err := f.ours.Open(f.t.Context(), pod, &options)
	if err != nil {
		f.t.Fatal(err)
	}
	defer stream.Close()
	if err := stream.Copy(f.t.Context(), &output, nil); err != nil {
		f.t.Fatal(err)
	}
	return theirs, output.String()
}

// logKind says what a random log may have.
type logKind struct{ parts, interleaved, garbage bool }

func randomLog(random *rand.Rand, kind logKind) string {
	var log strings.Builder
	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	zones := []*time.Location{time.UTC, time.FixedZone("", 2*3600), time.FixedZone("", -5*3600-1800)}
	entry := func(stream, tag string) {
		at = at.Add(time.Duration(random.IntN(2000)) * time.Millisecond / time.Duration(1+random.IntN(3)))
		text := strings.Repeat("aä \t", 1+random.IntN(20))
		if random.IntN(50) == 0 {
			text = strings.Repeat("long ", random.IntN(40_000))
		}
		if tag != "P" && random.IntN(10) == 0 {
			text = ""
		}
		fmt.Fprintf(&log, "%s %s %s %s\n", at.In(zones[random.IntN(len(zones))]).Format(time.RFC3339Nano), stream, tag, text)
	}
	streams := []string{"stdout", "stderr"}
	entry(streams[random.IntN(2)], "F")
	for range random.IntN(60) {
		stream := streams[random.IntN(2)]
		for kind.parts && random.IntN(3) == 0 {
			entry(stream, "P")
			if kind.interleaved {
				stream = streams[random.IntN(2)]
			}
		}
		entry(stream, []string{"F", "F:x"}[random.IntN(2)])
		if kind.garbage && random.IntN(5) == 0 {
			log.WriteString([]string{"\n", "garbage\n", "2026-01-02T12:00:00Z stdin F x\n", "2026-13-02T12:00:00Z stdout F x\n"}[random.IntN(4)])
		}
	}
	if kind.garbage && random.IntN(3) == 0 {
		log.WriteString("2026-01-02T13:00:00Z stdout F without an end")
	}
	return log.String()
}

func randomLogOptions(random *rand.Rand, withTail, withTimes bool) v1.PodLogOptions {
	var options v1.PodLogOptions
	options.Timestamps = withTimes && random.IntN(2) == 0
	if withTail && random.IntN(2) == 0 {
		options.TailLines = new(int64(random.IntN(70)))
	} else if random.IntN(3) == 0 {
		options.Stream = new([]string{v1.LogStreamAll, v1.LogStreamStdout, v1.LogStreamStderr}[random.IntN(3)])
	}
	if random.IntN(3) == 0 {
		options.LimitBytes = new(int64(1 + random.IntN(5000)))
	}
	if random.IntN(3) == 0 {
		options.SinceTime = new(metav1.NewTime(time.Date(2026, 1, 2, 12, 0, random.IntN(40), random.IntN(1e9), time.UTC)))
	}
	return options
}

// TestLogs_Random compares what the readers make of random logs. Three kinds of them are left to the tests of the intended
// differences: the last lines of logs with parts, or with garbage, and times of parts of both streams.
func TestLogs_Random(t *testing.T) {
	for name, test := range map[string]struct {
		kind                logKind
		withTail, withTimes bool
	}{
		"lines":             {logKind{}, true, true},
		"parts":             {logKind{parts: true}, false, true},
		"interleaved parts": {logKind{parts: true, interleaved: true}, false, false},
		"garbage":           {logKind{parts: true, garbage: true}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(300) {
				random := rand.New(rand.NewPCG(seed, 17))
				f := newLogFile(t)
				log := randomLog(random, test.kind)
				f.write("0.log", log)
				for range 5 {
					options := randomLogOptions(random, test.withTail, test.withTimes)
					if theirs, ours := f.read(options); theirs != ours {
						t.Fatalf("seed %d, options %+v, log:\n%s\ntheirs %q\nours   %q", seed, options, log, theirs, ours)
					}
				}
			}
		})
	}
}

func logLine(second int, rest string) string {
	return time.Date(2026, 1, 2, 12, 0, second, 5, time.UTC).Format(time.RFC3339Nano) + " " + rest + "\n"
}

func compareLogs(t *testing.T, f *logFile, options v1.PodLogOptions, wantTheirs, wantOurs string) {
	t.Helper()
	theirs, ours := f.read(options)
	if theirs != wantTheirs || ours != wantOurs {
		t.Errorf("theirs: got %q, want %q\nours: got %q, want %q", theirs, wantTheirs, ours, wantOurs)
	}
}

func TestLOG22_TimesOfParts(t *testing.T) {
	f := newLogFile(t)
	f.write("0.log", logLine(0, "stdout P a")+logLine(1, "stderr F e")+logLine(2, "stdout F b"))
	const first, second, third = "2026-01-02T12:00:00.000000005Z ", "2026-01-02T12:00:01.000000005Z ", "2026-01-02T12:00:02.000000005Z "
	compareLogs(t, f, v1.PodLogOptions{Timestamps: true}, first+"ae\n"+third+"b\n", first+"a"+second+"e\nb\n")
}

func TestLOG24_TailOfParts(t *testing.T) {
	f := newLogFile(t)
	f.write("0.log", logLine(0, "stdout F a")+logLine(1, "stdout P b")+logLine(2, "stdout P c")+logLine(3, "stdout F d"))
	compareLogs(t, f, v1.PodLogOptions{TailLines: new(int64(2))}, "cd\n", "a\nbcd\n")
}

func TestLOG27_RotatedLogs(t *testing.T) {
	f := newLogFile(t)
	f.write("0.log.20260102-120002", logLine(0, "stdout F a")+logLine(1, "stdout F b"))
	f.write("0.log", logLine(3, "stdout F c"))
	compareLogs(t, f, v1.PodLogOptions{}, "c\n", "c\n")
	compareLogs(t, f, v1.PodLogOptions{TailLines: new(int64(2))}, "c\n", "b\nc\n")
	since := metav1.NewTime(time.Date(2026, 1, 2, 12, 0, 1, 0, time.UTC))
	compareLogs(t, f, v1.PodLogOptions{SinceTime: &since}, "c\n", "b\nc\n")
}
