package cri_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
)

func small(config *cri.Config) { config.ContainerLogMaxSize, config.ContainerLogMaxFiles = 10, 4 }

// logger is a container that logs.
type logger struct {
	*world
	id, dir string
}

func (w *world) logger() *logger {
	w.Helper()
	return &logger{w, w.run(newPod()).ID.ID, filepath.Join(w.root, "logs", "prod_shop_uid-1", "web")}
}

func (l *logger) write(text string) {
	l.Helper()
	if err := l.fake.write(l.id, text); err != nil {
		l.Fatal(err)
	}
}

func (l *logger) rotate() {
	l.Helper()
	if err := l.RotateLogs(l.Context()); err != nil {
		l.Fatal(err)
	}
}

// logs is the content of each file of the log, uncompressed.
func (l *logger) logs() map[string]string {
	l.Helper()
	content := map[string]string{}
	for _, name := range files(l.T, l.dir) {
		file, err := os.Open(filepath.Join(l.dir, name))
		if err != nil {
			l.Fatal(err)
		}
		var from io.Reader = file
		if strings.HasSuffix(name, ".gz") {
			if from, err = gzip.NewReader(file); err != nil {
				l.Fatal(err)
			}
		}
		text, err := io.ReadAll(from)
		if err != nil {
			l.Fatal(err)
		}
		file.Close()
		content[name] = string(text)
	}
	return content
}

func (l *logger) want(want map[string]string) {
	l.Helper()
	if diff := cmp.Diff(want, l.logs()); diff != "" {
		l.Error(diff)
	}
}

func TestALogThatHasGrownBeginsAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.logger()
		l.write("first line")
		for i, line := range []string{"second line", "third line", "fourth line", "fifth"} {
			time.Sleep(time.Minute)
			l.rotate()
			if i == 0 {
				l.want(map[string]string{"0.log": "", "0.log.20000101-000100": "first line"})
			}
			l.write(line)
		}
		l.rotate() // the fifth is too short
		l.want(map[string]string{
			"0.log":                    "fifth",
			"0.log.20000101-000400":    "fourth line",
			"0.log.20000101-000300.gz": "third line",
			"0.log.20000101-000200.gz": "second line",
		})
	}, small)
}

func TestTwoRotationsInOneSecondLoseNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.logger()
		l.write("first line")
		l.rotate()
		l.write("second line")
		l.rotate()
		l.want(map[string]string{"0.log": "second line", "0.log.20000101-000000.gz": "first line"})
		time.Sleep(time.Second)
		l.rotate()
		l.want(map[string]string{"0.log": "", "0.log.20000101-000001": "second line", "0.log.20000101-000000.gz": "first line"})
	}, small)
}

func TestARuntimeThatDoesNotBeginANewLogKeepsTheOld(t *testing.T) {
	cases := map[string]struct {
		fault fault
		want  map[string]string
		fails bool
	}{
		"it refuses":         {refuses(codes.Internal, "no"), map[string]string{"0.log": "first line, more"}, true},
		"its answer is lost": {losesTheAnswer, map[string]string{"0.log": ", more", "0.log.20000101-000000": "first line"}, false},
		"it hangs":           {hangs, map[string]string{"0.log": "first line, more"}, true},
		"it is too old":      {refuses(codes.Unimplemented, "unknown method"), map[string]string{"0.log": "first line, more"}, true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				l := w.logger()
				l.write("first line")
				w.fake.next("ReopenContainerLog", test.fault)
				if err := w.RotateLogs(w.Context()); (err != nil) != test.fails {
					w.Errorf("it ended with %v", err)
				}
				l.write(", more")
				l.want(test.want)
			}, small)
		})
	}
}

func TestARotationThatWasCutOffIsFinished(t *testing.T) {
	cases := map[string]struct {
		left func(l *logger) error // by the one that was cut off
		want map[string]string
	}{
		"after the log got an old one's name": {
			func(l *logger) error {
				return os.Rename(filepath.Join(l.dir, "0.log"), filepath.Join(l.dir, "0.log.19991231-235959"))
			},
			map[string]string{"0.log": "next", "0.log.19991231-235959": "first line, more"},
		},
		"while it was put back": {
			func(l *logger) error {
				return os.Link(filepath.Join(l.dir, "0.log"), filepath.Join(l.dir, "0.log.19991231-235959"))
			},
			map[string]string{"0.log": "next", "0.log.19991231-235959.gz": "first line, more", "0.log.20000101-000000": "first line, more"},
		},
		"while it compressed": {
			func(l *logger) error {
				return os.WriteFile(filepath.Join(l.dir, "0.log.19991231-235959.tmp"), []byte("half"), 0o600)
			},
			map[string]string{"0.log": "next", "0.log.20000101-000000": "first line, more"},
		},
		"before it removed what it had compressed": {
			func(l *logger) error {
				old := filepath.Join(l.dir, "0.log.19991231-235959")
				return errors.Join(
					pack(filepath.Join(l.dir, "0.log.19991231-235900.gz"), "minus first"), pack(old+".gz", "zeroth"),
					os.WriteFile(old, []byte("zeroth"), 0o600))
			},
			map[string]string{
				"0.log": "next", "0.log.20000101-000000": "first line, more", "0.log.19991231-235959.gz": "zeroth",
				"0.log.19991231-235900.gz": "minus first",
			},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				l := w.logger()
				l.write("first line")
				if err := test.left(l); err != nil {
					w.Fatal(err)
				}
				l.write(", more")
				l.rotate()
				l.write("next")
				l.want(test.want)
			}, small)
		})
	}
}

func pack(name, text string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	packed := gzip.NewWriter(file)
	_, err = packed.Write([]byte(text))
	return errors.Join(err, packed.Close(), file.Close())
}

func TestLogsThatDoNotGrowAreLeftAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.logger()
		l.write("first line")
		w.fake.exit(l.id, 0)
		l.rotate()
		l.want(map[string]string{"0.log": "first line"})
	}, small)
	inWorld(t, func(w *world) {
		l := w.logger()
		l.write(strings.Repeat("x", 10<<20-1))
		l.rotate()
		if got := files(w.T, l.dir); len(got) != 1 {
			w.Errorf("a log below the usual limit was rotated: %v", got)
		}
		l.write("x")
		l.rotate()
		if got := files(w.T, l.dir); len(got) != 2 {
			w.Errorf("a log at the usual limit was not rotated: %v", got)
		}
	})
	inWorld(t, func(w *world) {
		l := w.logger()
		l.write("first line")
		l.rotate()
		if asked := requests[*runtimeapi.ReopenContainerLogRequest](w.fake); len(asked) > 0 || len(files(w.T, l.dir)) != 1 {
			w.Error("a log was rotated though that is switched off")
		}
	}, func(config *cri.Config) { config.ContainerLogMaxSize = -1 })
}

func TestOneLogThatCannotBeRotatedHoldsUpNoOther(t *testing.T) {
	inWorld(t, func(w *world) {
		var ids []string
		for _, uid := range []types.UID{"uid-1", "uid-2"} {
			pod := newPod(named(uid))
			id := w.run(pod).ID.ID
			ids = append(ids, id)
			if err := w.fake.write(id, "first line"); err != nil {
				w.Fatal(err)
			}
		}
		w.fake.next("ReopenContainerLog", refuses(codes.Internal, "broken pipe"))
		err := w.RotateLogs(w.Context())
		if err == nil || !strings.Contains(err.Error(), ids[0]+": ") || !strings.Contains(err.Error(), "broken pipe") {
			w.Errorf("it ended with %v", err)
		}
		if found := files(w.T, filepath.Join(w.root, "logs")); !slices.Contains(found, "prod_uid-2_uid-2/web/0.log.20000101-000000") {
			w.Errorf("files: %v", found)
		}
	}, small)
}

func TestBUG27ARotationThatWaitsForAnotherEndsWithItsContext(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.logger()
		l.write("first line")
		w.fake.next("ReopenContainerLog", takes(time.Minute))
		ended := make(chan error, 1)
		go func() { ended <- w.RotateLogs(w.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := w.RotateLogs(ctx); err == nil {
			w.Error("two rotations at once")
		}
		if err := <-ended; err != nil {
			w.Error(err)
		}
		l.want(map[string]string{"0.log": "", "0.log.20000101-000000": "first line"})
	}, small)
}
