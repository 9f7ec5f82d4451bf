package containerlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/containerlog"
)

func TestLOG20_Parts(t *testing.T) {
	n := newNode(t)
	n.write(n.path("web", 0), "2026-01-02T12:00:00Z stdout P:x on\n2026-01-02T14:00:01.5+02:00 stdout F:x:y e\n"+
		"2026-01-02T12:00:02.123456789Z stderr F two\n")
	if got, want := n.read(v1.PodLogOptions{}), "one\ntwo\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	want := "2026-01-02T12:00:00.000000000Z one\n2026-01-02T12:00:02.123456789Z two\n"
	if got := n.read(v1.PodLogOptions{Timestamps: true}); got != want {
		t.Errorf("with timestamps: got %q, want %q", got, want)
	}
}

func TestLOG20_Times(t *testing.T) {
	n := newNode(t)
	n.write(n.path("web", 0), "2026-01-31T14:00:01.5+02:00 stdout F a\n2024-02-29T00:00:00+00:00 stdout F b\n"+
		"2026-02-30T00:00:00Z stdout F no such day\n2026-01-01T24:00:00Z stdout F no such hour\n")
	want := "2026-01-31T14:00:01.500000000+02:00 a\n2024-02-29T00:00:00.000000000Z b\n"
	if got := n.read(v1.PodLogOptions{Timestamps: true}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLOG21_Formats(t *testing.T) {
	t.Run("docker", func(t *testing.T) {
		n := newNode(t)
		n.write(n.path("web", 0), `{"log":"one\n","stream":"stdout","time":"2026-01-02T12:00:00.1Z"}`+"\n"+
			`{"log":"t","stream":"stderr","time":"2026-01-02T12:00:01Z"}`+"\n"+
			"not JSON\n"+
			`{"log":"wo\n","stream":"stderr","time":"2026-01-02T12:00:02Z"}`+"\n")
		want := "2026-01-02T12:00:00.100000000Z one\n2026-01-02T12:00:01.000000000Z two\n"
		if got := n.read(v1.PodLogOptions{Timestamps: true}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := n.read(v1.PodLogOptions{TailLines: new(int64(1))}); got != "wo\n" {
			t.Errorf("last line: got %q, want %q", got, "wo\n")
		}
	})
	t.Run("long docker entry", func(t *testing.T) {
		n := newNode(t)
		text := strings.Repeat("x", 200<<10)
		n.write(n.path("web", 0), `{"log":"`+text+`\n","stream":"stdout","time":"2026-01-02T12:00:00.1Z"}`+"\n")
		if got := n.read(v1.PodLogOptions{}); got != text+"\n" {
			t.Errorf("got %d bytes, want %d", len(got), len(text)+1)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		n := newNode(t)
		n.write(n.path("web", 0), "root:secret:0:0\n")
		_, err := n.open(&v1.PodLogOptions{})
		var response *containerlog.Error
		if !errors.As(err, &response) || response.Code != http.StatusInternalServerError || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want code 500 without the content of the file", err)
		}
	})
	t.Run("later entries", func(t *testing.T) {
		n := newNode(t)
		n.write(n.path("web", 0), entries("0 stdout F a")+"garbage\n\n"+at(1)+" stdin F x\n"+at(1)+" stdout\n"+entries("2 stdout F b"))
		if got, want := n.read(v1.PodLogOptions{}), "a\nb\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestLOG22_StateOfEachStream has parts of both streams between each other. Each line has one time.
func TestLOG22_StateOfEachStream(t *testing.T) {
	n := newNode(t)
	n.write(n.path("web", 0), entries("0 stdout P a", "1 stderr F e", "2 stdout F b", "3 stdout F c"))
	got := n.read(v1.PodLogOptions{Timestamps: true})
	long := func(second int) string {
		return time.Date(2026, 1, 2, 12, 0, second, 5, time.UTC).Format("2006-01-02T15:04:05.000000000Z")
	}
	if want := long(0) + " a" + long(1) + " e\nb\n" + long(3) + " c\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLOG23_Since(t *testing.T) {
	n := newNode(t)
	n.write(n.path("web", 0), entries("0 stdout F a", "1 stdout F b", "2 stdout F c"))
	since := metav1.NewTime(time.Date(2026, 1, 2, 12, 0, 1, 5, time.UTC))
	if got, want := n.read(v1.PodLogOptions{SinceTime: &since}), "b\nc\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := n.read(v1.PodLogOptions{SinceTime: &since, TailLines: new(int64(1))}), "c\n"; got != want {
		t.Errorf("with tail: got %q, want %q", got, want)
	}
	n.write(n.path("web", 0), time.Now().Format(time.RFC3339Nano)+" stdout F now\n")
	if got, want := n.read(v1.PodLogOptions{SinceSeconds: new(int64(3600))}), "now\n"; got != want {
		t.Errorf("sinceSeconds: got %q, want %q", got, want)
	}
}

func TestLOG24_Tail(t *testing.T) {
	log := entries("0 stdout F a", "1 stdout P b1", "2 stdout P b2", "3 stderr F e", "4 stdout F b3", "5 stdout F c")
	cases := map[string]struct {
		log  string
		n    int64
		want string
	}{
		"none":             {log, 0, ""},
		"last":             {log, 1, "c\n"},
		"line of parts":    {log, 2, "b1b2b3\nc\n"},
		"other stream":     {log, 3, "b1b2e\nb3\nc\n"},
		"more than all":    {log, 10, "a\nb1b2e\nb3\nc\n"},
		"line without end": {log + entries("6 stdout P d"), 1, "d"},
		"incomplete entry": {log + at(6) + " stdout F not yet", 1, "c\n"},
		"only incomplete":  {at(6) + " stdout F not yet", 1, ""},
		"empty":            {"", 5, ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.write(n.path("web", 0), test.log)
			if got := n.read(v1.PodLogOptions{TailLines: &test.n}); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestLOG24_LongLog has entries at the borders of the blocks that are read backwards.
func TestLOG24_LongLog(t *testing.T) {
	n := newNode(t)
	var log, text strings.Builder
	for i := range 3000 {
		line := fmt.Sprintf("%d %s", i, strings.Repeat("x", i%151))
		log.WriteString(entries("0 stdout F " + line))
		text.WriteString(line + "\n")
	}
	n.write(n.path("web", 0), log.String())
	lines := strings.SplitAfter(text.String(), "\n")
	for _, count := range []int64{1, 7, 300, 1234, 2999, 3000, 3001} {
		want := strings.Join(lines[max(0, 3000-int(count)):], "")
		if got := n.read(v1.PodLogOptions{TailLines: &count}); got != want {
			t.Errorf("%d lines: got %d bytes, want %d", count, len(got), len(want))
		}
	}
}

func TestLOG25_Limit(t *testing.T) {
	n := newNode(t)
	n.write(n.path("web", 0), entries("0 stdout F aä", "1 stdout P b", "2 stdout F c"))
	all := n.read(v1.PodLogOptions{Timestamps: true})
	for limit := int64(1); limit <= int64(len(all))+2; limit++ {
		want := all[:min(limit, int64(len(all)))]
		if got := n.read(v1.PodLogOptions{Timestamps: true, LimitBytes: &limit}); got != want {
			t.Errorf("%d bytes: got %q, want %q", limit, got, want)
		}
	}
}

func TestLOG26_Stream(t *testing.T) {
	n := newNode(t)
	n.write(n.path("web", 0), entries("0 stdout F out", "1 stderr F err", "2 stdout F out2"))
	for stream, want := range map[string]string{
		v1.LogStreamAll: "out\nerr\nout2\n", v1.LogStreamStdout: "out\nout2\n", v1.LogStreamStderr: "err\n",
	} {
		if got := n.read(v1.PodLogOptions{Stream: &stream}); got != want {
			t.Errorf("%s: got %q, want %q", stream, got, want)
		}
	}
	if got := n.read(v1.PodLogOptions{Stream: new(v1.LogStreamStderr), LimitBytes: new(int64(3))}); got != "err" {
		t.Errorf("with a limit: got %q, want %q", got, "err")
	}
}

// rotatedLog writes a log of lines 0 to 9 in three rotated files and the current one. A line of parts is in two files.
func rotatedLog(n *node) {
	path := n.path("web", 0)
	n.write(path, entries("0 stdout F 0", "1 stdout F 1", "2 stdout F 2"))
	n.rotate(path, "20260102-120003", true)
	n.write(path, entries("3 stdout F 3", "4 stdout F 4"))
	n.rotate(path, "20260102-120005", true)
	n.write(path, entries("5 stdout F 5", "6 stdout F 6", "7 stdout P part "))
	n.rotate(path, "20260102-120008", false)
	n.write(path, entries("8 stdout F 7", "9 stdout F 8"))
	n.write(path+".20260102-120009.tmp", "being compressed")
}

func TestLOG27_Rotated(t *testing.T) {
	all := []string{"0\n", "1\n", "2\n", "3\n", "4\n", "5\n", "6\n", "part 7\n", "8\n"}
	n := newNode(t)
	rotatedLog(n)
	if got, want := n.read(v1.PodLogOptions{}), "7\n8\n"; got != want {
		t.Errorf("without options: got %q, want the current file %q", got, want)
	}
	for lines := range int64(12) {
		want := strings.Join(all[max(0, len(all)-int(lines)):], "")
		if got := n.read(v1.PodLogOptions{TailLines: &lines}); got != want {
			t.Errorf("%d lines: got %q, want %q", lines, got, want)
		}
	}
	for second := range 10 {
		since := metav1.NewTime(time.Date(2026, 1, 2, 12, 0, second, 0, time.UTC))
		want := strings.Join(all[min(second, 8):], "")
		if second == 8 {
			want = "7\n8\n" // the first part is older
		}
		if got := n.read(v1.PodLogOptions{SinceTime: &since}); got != want {
			t.Errorf("since second %d: got %q, want %q", second, got, want)
		}
	}
}

// TestLOG27_JustRotated has an empty current file.
func TestLOG27_JustRotated(t *testing.T) {
	n := newNode(t)
	path := n.path("web", 0)
	n.write(path, entries("0 stdout F a", "1 stdout F b"))
	n.rotate(path, "20260102-120003", false)
	n.write(path, "")
	if got, want := n.read(v1.PodLogOptions{TailLines: new(int64(1))}), "b\n"; got != want {
		t.Errorf("tail: got %q, want %q", got, want)
	}
	since := metav1.NewTime(time.Date(2026, 1, 2, 12, 0, 1, 0, time.UTC))
	if got, want := n.read(v1.PodLogOptions{SinceTime: &since}), "b\n"; got != want {
		t.Errorf("since: got %q, want %q", got, want)
	}
}

// TestLOG30_LongLine reads an entry that is much larger than the memory that a stream uses.
func TestLOG30_LongLine(t *testing.T) {
	n := newNode(t)
	for _, tag := range []string{"F", "P"} {
		text := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
		path := n.path("web", 0)
		_ = os.Remove(path)
		n.write(path, entries("0 stdout F first", "1 stdout "+tag+" "+text, "2 stdout F last"))
		end := "\n"
		if tag == "P" {
			end = ""
		}
		if got := n.read(v1.PodLogOptions{}); got != "first\n"+text+end+"last\n" {
			t.Errorf("%s: got %d bytes", tag, len(got))
		}
		count := int64(2)
		want := text + end + "last\n"
		if tag == "P" {
			count = 1
		}
		if got := n.read(v1.PodLogOptions{TailLines: &count}); got != want {
			t.Errorf("%s, tail: got %d bytes, want %d", tag, len(got), len(want))
		}
	}
}

// TestLOG30_PlantedFiles puts other files in the place of a log, as a pod can that mounts the directory of logs.
func TestLOG30_PlantedFiles(t *testing.T) {
	secret := entries("0 stdout F secret")
	cases := map[string]func(n *node, path, outside string) error{
		"link out":         func(_ *node, path, outside string) error { return os.Symlink(outside, path) },
		"link inside":      func(n *node, path, _ string) error { return os.Symlink(n.path("init", 0), path) },
		"hard link":        func(_ *node, path, outside string) error { return os.Link(outside, path) },
		"directory":        func(_ *node, path, _ string) error { return os.Mkdir(path, 0o755) },
		"linked directory": func(_ *node, path, outside string) error { return plantDirectory(path, outside) },
	}
	for name, plant := range cases {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			outside := filepath.Join(t.TempDir(), "0.log")
			n.write(outside, secret)
			if err := os.MkdirAll(filepath.Dir(n.path("init", 0)), 0o755); err != nil {
				t.Fatal(err)
			}
			n.write(n.path("init", 0), secret)
			if err := plant(n, n.path("web", 0), outside); err != nil {
				t.Fatal(err)
			}
			stream, err := n.open(&v1.PodLogOptions{})
			var response *containerlog.Error
			if !errors.As(err, &response) || response.Code != http.StatusBadRequest {
				t.Errorf("got %v, %v, want code 400", stream, err)
			}
		})
	}
	t.Run("rotated", func(t *testing.T) {
		n := newNode(t)
		outside := filepath.Join(t.TempDir(), "0.log")
		n.write(outside, secret)
		n.write(n.path("web", 0), entries("1 stdout F a"))
		if err := os.Symlink(outside, n.path("web", 0)+".20260102-120000"); err != nil {
			t.Fatal(err)
		}
		if got := n.read(v1.PodLogOptions{TailLines: new(int64(5))}); got != "a\n" {
			t.Errorf("got %q, want %q", got, "a\n")
		}
	})
}

// plantDirectory replaces the directory of the log by a link.
func plantDirectory(path, outside string) error {
	if err := os.Remove(filepath.Dir(path)); err != nil {
		return err
	}
	return os.Symlink(filepath.Dir(outside), filepath.Dir(path))
}

// TestStream_WriterFails has a client that goes away.
func TestStream_WriterFails(t *testing.T) {
	n := newNode(t)
	n.write(n.path("web", 0), strings.Repeat(entries("0 stdout F line"), 10000))
	stream, err := n.open(&v1.PodLogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	gone := errors.New("gone")
	if err := stream.Copy(t.Context(), failingWriter{gone}, nil); !errors.Is(err, gone) {
		t.Errorf("got %v, want %v", err, gone)
	}
	if err := stream.Copy(t.Context(), &bytes.Buffer{}, func() error { return gone }); !errors.Is(err, gone) {
		t.Errorf("flush: got %v, want %v", err, gone)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
