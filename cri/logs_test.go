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
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
)

func smallLogs(config *cri.Config) { config.ContainerLogMaxSize, config.ContainerLogMaxFiles = 10, 4 }

// loggingContainer is a running container with its log directory.
type loggingContainer struct {
	*harness
	id, dir string
}

func (h *harness) startLogging() *loggingContainer {
	h.Helper()
	return &loggingContainer{h, h.startPod(newPod()).ID.ID, filepath.Join(h.root, "logs", "prod_shop_uid-1", "web")}
}

func (c *loggingContainer) write(text string) {
	c.Helper()
	if err := c.fake.writeLog(c.id, text); err != nil {
		c.Fatal(err)
	}
}

func (c *loggingContainer) rotate() {
	c.Helper()
	if err := c.RotateLogs(c.Context()); err != nil {
		c.Fatal(err)
	}
}

// logs returns the uncompressed content of each file of the log.
func (c *loggingContainer) logs() map[string]string {
	c.Helper()
	content := map[string]string{}
	for _, name := range listFiles(c.T, c.dir) {
		file, err := os.Open(filepath.Join(c.dir, name))
		if err != nil {
			c.Fatal(err)
		}
		var reader io.Reader = file
		if strings.HasSuffix(name, ".gz") {
			if reader, err = gzip.NewReader(file); err != nil {
				c.Fatal(err)
			}
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			c.Fatal(err)
		}
		file.Close()
		content[name] = string(text)
	}
	return content
}

func (c *loggingContainer) wantLogs(want map[string]string) {
	c.Helper()
	if diff := cmp.Diff(want, c.logs()); diff != "" {
		c.Error(diff)
	}
}

func TestRotateLogs(t *testing.T) {
	inBubble(t, func(h *harness) {
		c := h.startLogging()
		c.write("first line")
		for i, line := range []string{"second line", "third line", "fourth line", "fifth"} {
			time.Sleep(time.Minute)
			c.rotate()
			if i == 0 {
				c.wantLogs(map[string]string{"0.log": "", "0.log.20000101-000100": "first line"})
			}
			c.write(line)
		}
		c.rotate() // the fifth line is below the limit
		c.wantLogs(map[string]string{
			"0.log":                    "fifth",
			"0.log.20000101-000400":    "fourth line",
			"0.log.20000101-000300.gz": "third line",
			"0.log.20000101-000200.gz": "second line",
		})
	}, smallLogs)
}

func TestRotateLogs_TwiceWithinSecond(t *testing.T) {
	inBubble(t, func(h *harness) {
		c := h.startLogging()
		c.write("first line")
		c.rotate()
		c.write("second line")
		c.rotate()
		c.wantLogs(map[string]string{"0.log": "second line", "0.log.20000101-000000.gz": "first line"})
		time.Sleep(time.Second)
		c.rotate()
		c.wantLogs(map[string]string{"0.log": "", "0.log.20000101-000001": "second line", "0.log.20000101-000000.gz": "first line"})
	}, smallLogs)
}

func TestRotateLogs_ReopenFails(t *testing.T) {
	tests := map[string]struct {
		fault   fault
		want    map[string]string
		wantErr bool
	}{
		"error":           {fails(codes.Internal, "no"), map[string]string{"0.log": "first line, more"}, true},
		"lost response":   {losesResponse, map[string]string{"0.log": ", more", "0.log.20000101-000000": "first line"}, false},
		"hanging":         {hangs, map[string]string{"0.log": "first line, more"}, true},
		"not implemented": {fails(codes.Unimplemented, "unknown method"), map[string]string{"0.log": "first line, more"}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				c := h.startLogging()
				c.write("first line")
				h.fake.inject("ReopenContainerLog", test.fault)
				if err := h.RotateLogs(h.Context()); (err != nil) != test.wantErr {
					h.Errorf("got error %v", err)
				}
				c.write(", more")
				c.wantLogs(test.want)
			}, smallLogs)
		})
	}
}

func TestRotateLogs_AfterInterruption(t *testing.T) {
	tests := map[string]struct {
		prepare func(c *loggingContainer) error // leaves the state of an interrupted rotation
		want    map[string]string
	}{
		"after the rename": {
			func(c *loggingContainer) error {
				return os.Rename(filepath.Join(c.dir, "0.log"), filepath.Join(c.dir, "0.log.19991231-235959"))
			},
			map[string]string{"0.log": "next", "0.log.19991231-235959": "first line, more"},
		},
		"while undoing the rename": {
			func(c *loggingContainer) error {
				return os.Link(filepath.Join(c.dir, "0.log"), filepath.Join(c.dir, "0.log.19991231-235959"))
			},
			map[string]string{"0.log": "next", "0.log.19991231-235959.gz": "first line, more", "0.log.20000101-000000": "first line, more"},
		},
		"while compressing": {
			func(c *loggingContainer) error {
				return os.WriteFile(filepath.Join(c.dir, "0.log.19991231-235959.tmp"), []byte("half"), 0o600)
			},
			map[string]string{"0.log": "next", "0.log.20000101-000000": "first line, more"},
		},
		"before removing the original": {
			func(c *loggingContainer) error {
				old := filepath.Join(c.dir, "0.log.19991231-235959")
				return errors.Join(
					writeGzip(filepath.Join(c.dir, "0.log.19991231-235900.gz"), "minus first"), writeGzip(old+".gz", "zeroth"),
					os.WriteFile(old, []byte("zeroth"), 0o600))
			},
			map[string]string{
				"0.log": "next", "0.log.20000101-000000": "first line, more", "0.log.19991231-235959.gz": "zeroth",
				"0.log.19991231-235900.gz": "minus first",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				c := h.startLogging()
				c.write("first line")
				if err := test.prepare(c); err != nil {
					h.Fatal(err)
				}
				c.write(", more")
				c.rotate()
				c.write("next")
				c.wantLogs(test.want)
			}, smallLogs)
		})
	}
}

func writeGzip(name, text string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	writer := gzip.NewWriter(file)
	_, err = writer.Write([]byte(text))
	return errors.Join(err, writer.Close(), file.Close())
}

func TestRotateLogs_NotNeeded(t *testing.T) {
	inBubble(t, func(h *harness) {
		c := h.startLogging()
		c.write("first line")
		h.fake.exit(c.id, 0)
		c.rotate()
		c.wantLogs(map[string]string{"0.log": "first line"})
	}, smallLogs)
	inBubble(t, func(h *harness) {
		c := h.startLogging()
		c.write(strings.Repeat("x", 10<<20-1))
		c.rotate()
		if got := listFiles(h.T, c.dir); len(got) != 1 {
			h.Errorf("below the default limit: got files %v", got)
		}
		c.write("x")
		c.rotate()
		if got := listFiles(h.T, c.dir); len(got) != 2 {
			h.Errorf("at the default limit: got files %v", got)
		}
	})
	inBubble(t, func(h *harness) {
		c := h.startLogging()
		c.write("first line")
		c.rotate()
		if reopened := requests[*runtimeapi.ReopenContainerLogRequest](h.fake); len(reopened) > 0 || len(listFiles(h.T, c.dir)) != 1 {
			h.Error("got a rotation although it is disabled")
		}
	}, func(config *cri.Config) { config.ContainerLogMaxSize = -1 })
}

func TestRotateLogs_ContinuesAfterFailure(t *testing.T) {
	inBubble(t, func(h *harness) {
		var ids []string
		for _, uid := range []types.UID{"uid-1", "uid-2"} {
			pod := newPod(withUID(uid))
			id := h.startPod(pod).ID.ID
			ids = append(ids, id)
			if err := h.fake.writeLog(id, "first line"); err != nil {
				h.Fatal(err)
			}
		}
		h.fake.inject("ReopenContainerLog", fails(codes.Internal, "broken pipe"))
		err := h.RotateLogs(h.Context())
		if err == nil || !strings.Contains(err.Error(), ids[0]+": ") || !strings.Contains(err.Error(), "broken pipe") {
			h.Errorf("got error %v", err)
		}
		if found := listFiles(h.T, filepath.Join(h.root, "logs")); !slices.Contains(found, "prod_uid-2_uid-2/web/0.log.20000101-000000") {
			h.Errorf("got files %v", found)
		}
	}, smallLogs)
}

func TestBUG27_WaitingRotation(t *testing.T) {
	inBubble(t, func(h *harness) {
		c := h.startLogging()
		c.write("first line")
		h.fake.inject("ReopenContainerLog", delays(time.Minute))
		done := make(chan error, 1)
		go func() { done <- h.RotateLogs(h.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		if err := h.RotateLogs(ctx); err == nil {
			h.Error("got concurrent rotations")
		}
		if err := <-done; err != nil {
			h.Error(err)
		}
		c.wantLogs(map[string]string{"0.log": "", "0.log.20000101-000000": "first line"})
	}, smallLogs)
}

// A pod that mounts the log directory can create links there.
func TestRotateLogs_NoLinksFollowed(t *testing.T) {
	tests := map[string]func(c *loggingContainer, secret string) error{
		"rotated log is a link": func(c *loggingContainer, secret string) error {
			return os.Symlink(secret+"/0.log", filepath.Join(c.dir, "0.log.19991231-235959"))
		},
		"rotated log is a link to another pod's": func(c *loggingContainer, _ string) error {
			other := filepath.Join(filepath.Dir(filepath.Dir(c.dir)), "other")
			c.writeFile(other, "another pod's secret")
			return os.Symlink("../../other", filepath.Join(c.dir, "0.log.19991231-235959"))
		},
		"temporary file is a link": func(c *loggingContainer, secret string) error {
			return os.Symlink(secret+"/0.log", filepath.Join(c.dir, "0.log.19991231-235959.tmp"))
		},
		"rotated log is a pipe": func(c *loggingContainer, _ string) error {
			return syscall.Mkfifo(filepath.Join(c.dir, "0.log.19991231-235959"), 0o600)
		},
		"log is a link": func(c *loggingContainer, secret string) error {
			log := filepath.Join(c.dir, "0.log")
			if err := os.Remove(log); err != nil {
				return err
			}
			return os.Symlink(secret+"/0.log", log)
		},
		"container directory is a link": func(c *loggingContainer, secret string) error {
			if err := os.Rename(c.dir, c.dir+"-moved"); err != nil {
				return err
			}
			return os.Symlink(secret, c.dir)
		},
	}
	for name, plant := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				c, secret := h.startLogging(), filepath.Join(h.root, "secret")
				h.writeFile(secret+"/0.log", "the node's secret")
				c.write("a line above the limit")
				if err := plant(c, secret); err != nil {
					h.Fatal(err)
				}
				if err := h.RotateLogs(h.Context()); err != nil {
					h.Log(err) // an error is fine
				}
				if content, err := os.ReadFile(secret + "/0.log"); string(content) != "the node's secret" {
					h.Errorf("got secret %q, %v", content, err)
				}
				if files := listFiles(h.T, secret); len(files) != 1 {
					h.Errorf("got files next to the secret: %v", files)
				}
				for _, file := range listFiles(h.T, filepath.Join(h.root, "logs")) {
					if strings.HasSuffix(file, ".gz") {
						h.Errorf("got compressed file %s", file)
					}
				}
			}, smallLogs)
		})
	}
}

// The runtime opens a log by its path and follows links there.
func TestStartContainer_PlantedLog(t *testing.T) {
	plants := map[string]func(log, secret string) error{
		"link":          func(log, secret string) error { return os.Symlink(secret, log) },
		"dangling link": func(log, secret string) error { return os.Symlink(secret+"-new", log) },
		"hard link":     func(log, secret string) error { return os.Link(secret, log) },
	}
	for name, plant := range plants {
		for _, method := range []string{"RunPodSandbox", "CreateContainer"} { // planted after this call
			t.Run(name+" after "+method, func(t *testing.T) {
				inBubble(t, func(h *harness) {
					secret, log := filepath.Join(h.root, "secret/file"), filepath.Join(h.root, "logs/prod_shop_uid-1/web/0.log")
					h.writeFile(secret, "the node's secret")
					h.fake.inject(method, func(_ context.Context, execute func() (any, error)) (any, error) {
						response, err := execute()
						h.mkdir(filepath.Dir(log))
						return response, errors.Join(err, plant(log, secret))
					})
					c := h.startLogging()
					c.write("line")
					c.wantLogs(map[string]string{"0.log": "line"})
					h.wantSecret(secret)
				})
			})
		}
	}
}

// wantSecret checks that the file is unchanged, is no log, and that nothing was created next to it.
func (h *harness) wantSecret(secret string) {
	h.Helper()
	if content, err := os.ReadFile(secret); string(content) != "the node's secret" {
		h.Errorf("got secret %q, %v", content, err)
	}
	if files := listFiles(h.T, filepath.Dir(secret)); len(files) != 1 {
		h.Errorf("got files next to the secret: %v", files)
	}
}

func TestRotateLogs_PlantedLog(t *testing.T) {
	inBubble(t, func(h *harness) {
		c, secret := h.startLogging(), filepath.Join(h.root, "secret/file")
		log := filepath.Join(c.dir, "0.log")
		h.writeFile(secret, "the node's secret")
		c.write("first line")
		h.fake.inject("ReopenContainerLog", func(_ context.Context, execute func() (any, error)) (any, error) {
			if err := os.Symlink(secret, log); err != nil {
				return nil, err
			}
			return execute()
		})
		c.rotate()
		c.write("second line")
		c.wantLogs(map[string]string{"0.log": "second line", "0.log.20000101-000000": "first line"})

		if err := errors.Join(os.Remove(log), os.Symlink(secret, log)); err != nil {
			h.Fatal(err)
		}
		c.rotate()
		c.write("third line")
		c.wantLogs(map[string]string{"0.log": "third line", "0.log.20000101-000000": "first line"})
		h.wantSecret(secret)
	}, smallLogs)
}

func TestCreateLogDir_NoLinksFollowed(t *testing.T) {
	for name, planted := range map[string]string{"pod directory": "prod_shop_uid-1", "container directory": "prod_shop_uid-1/web"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				outside, link := filepath.Join(h.root, "outside"), filepath.Join(h.root, "logs", planted)
				h.mkdir(outside)
				h.mkdir(filepath.Dir(link))
				if err := os.Symlink(outside, link); err != nil {
					h.Fatal(err)
				}
				pod := newPod()
				id, err := h.StartSandbox(h.Context(), pod, 0)
				if err == nil {
					err = h.StartContainer(h.Context(), pod, id, firstStart(pod))
				}
				if err == nil || !strings.Contains(err.Error(), "log directory") {
					h.Errorf("got error %v", err)
				}
				if created := listFiles(h.T, outside); len(created) > 0 {
					h.Errorf("got files outside of the log directory: %v", created)
				}
			})
		})
	}
}
