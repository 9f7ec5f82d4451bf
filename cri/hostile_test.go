package cri_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestNoNameOfAPodLeadsOutOfItsFolders(t *testing.T) {
	tests := map[string]struct {
		spoil func(*v1.Pod, string)
		names string // the field
	}{
		"its UID":                  {func(p *v1.Pod, name string) { p.UID = types.UID(name) }, "metadata.uid"},
		"its name":                 {func(p *v1.Pod, name string) { p.Name = name }, "metadata.name"},
		"its namespace":            {func(p *v1.Pod, name string) { p.Namespace = name }, "metadata.namespace"},
		"a container's name":       {func(p *v1.Pod, name string) { p.Spec.Containers[0].Name = name }, "spec.containers[0].name"},
		"an init container's name": {func(p *v1.Pod, name string) { p.Spec.InitContainers = []v1.Container{{Name: name}} }, "spec.initContainers[0].name"},
		"a debugging container's name": {func(p *v1.Pod, name string) {
			p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name}}}
		}, "spec.ephemeralContainers[0].name"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, evil := range []string{"../../etc", "a/b", "..", ".hidden", "nul\x00", "", strings.Repeat("x", 256)} {
				inWorld(t, func(w *world) {
					_, err := w.StartSandbox(w.Context(), newPod(func(p *v1.Pod) { test.spoil(p, evil) }), 0)
					if err == nil || !strings.Contains(err.Error(), test.names+": ") {
						w.Errorf("%q: it ended with %v", evil, err)
					}
					if made := files(w.T, w.root); len(made) > 0 {
						w.Errorf("%q: files were made: %v", evil, made)
					}
				})
			}
		})
	}
}

// A pod that has the folder of all logs mounted can put there what it likes.
func TestLinksAmongTheLogsLeadNowhere(t *testing.T) {
	tests := map[string]func(l *logger, secret string) error{
		"an older part is a link": func(l *logger, secret string) error {
			return os.Symlink(secret+"/0.log", filepath.Join(l.dir, "0.log.19991231-235959"))
		},
		"what is being compressed is a link": func(l *logger, secret string) error {
			return os.Symlink(secret+"/0.log", filepath.Join(l.dir, "0.log.19991231-235959.tmp"))
		},
		"an older part is a pipe": func(l *logger, _ string) error {
			return syscall.Mkfifo(filepath.Join(l.dir, "0.log.19991231-235959"), 0o600)
		},
		"the log is a link": func(l *logger, secret string) error {
			log := filepath.Join(l.dir, "0.log")
			if err := os.Remove(log); err != nil {
				return err
			}
			return os.Symlink(secret+"/0.log", log)
		},
		"the container's folder is a link": func(l *logger, secret string) error {
			if err := os.Rename(l.dir, l.dir+"-moved"); err != nil {
				return err
			}
			return os.Symlink(secret, l.dir)
		},
	}
	for name, plant := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				l, secret := w.logger(), filepath.Join(w.root, "secret")
				w.write(secret+"/0.log", "the node's secret")
				l.write("a line that is long enough")
				if err := plant(l, secret); err != nil {
					w.Fatal(err)
				}
				if err := w.RotateLogs(w.Context()); err != nil {
					w.Log(err) // it may be refused, it must not be obeyed
				}
				if content, err := os.ReadFile(secret + "/0.log"); string(content) != "the node's secret" {
					w.Errorf("the secret is %q, %v", content, err)
				}
				if left := files(w.T, secret); len(left) != 1 {
					w.Errorf("beside the secret: %v", left)
				}
				for _, file := range files(w.T, filepath.Join(w.root, "logs")) {
					if strings.HasSuffix(file, ".gz") {
						w.Errorf("%s was compressed", file)
					}
				}
			}, small)
		})
	}
}

func TestNothingIsLoggedThroughALinkOutOfTheLogs(t *testing.T) {
	for name, planted := range map[string]string{"the pod's folder": "prod_shop_uid-1", "the container's folder": "prod_shop_uid-1/web"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				outside, link := filepath.Join(w.root, "outside"), filepath.Join(w.root, "logs", planted)
				if err := errors.Join(w.Mkdir(outside), w.Mkdir(filepath.Dir(link)), os.Symlink(outside, link)); err != nil {
					w.Fatal(err)
				}
				pod := newPod()
				id, err := w.StartSandbox(w.Context(), pod, 0)
				if err == nil {
					err = w.StartContainer(w.Context(), pod, id, first(pod))
				}
				if err == nil || !strings.Contains(err.Error(), "log directory") {
					w.Errorf("it ended with %v", err)
				}
				if made := files(w.T, outside); len(made) > 0 {
					w.Errorf("outside: %v", made)
				}
			})
		})
	}
}

func TestATerminationMessageIsReadFromItsFileOnly(t *testing.T) {
	const secret = "the node's secret"
	tests := map[string]struct {
		plant func(path, outside string) error // in place of the file for the message, or of the log's folder
		log   bool
		says  string
	}{
		"a link":   {func(path, outside string) error { return os.Symlink(outside+"/0.log", path) }, false, "too many levels"},
		"a pipe":   {func(path, _ string) error { return syscall.Mkfifo(path, 0o600) }, false, "not a regular file"},
		"a folder": {func(path, _ string) error { return os.Mkdir(path, 0o700) }, false, "not a regular file"},
		"a linked folder of logs": {
			func(path, outside string) error { return os.Symlink(outside, path) }, true, "Error on reading termination message from logs",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				pod := newPod(func(p *v1.Pod) {
					p.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
					p.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
				})
				config := w.made(pod)
				outside := filepath.Join(w.root, "secret")
				w.write(outside+"/0.log", entries("F "+secret))
				place := config.Mounts[len(config.Mounts)-1].HostPath
				if test.log {
					place = filepath.Join(w.root, "logs/prod_shop_uid-1/web")
				}
				if err := os.RemoveAll(place); err != nil {
					w.Fatal(err)
				}
				if err := test.plant(place, outside); err != nil {
					w.Fatal(err)
				}
				w.fake.exit(w.only(pod).ID.ID, 1)
				got := w.only(pod).Exit.Message
				if strings.Contains(got, secret) || !strings.Contains(got, test.says) {
					w.Errorf("the message is %q", got)
				}
			})
		})
	}
}

// HTTP hooks go over real sockets, which a bubble cannot have.
func TestHooksDoNotReachTheNodesOwnAddresses(t *testing.T) {
	reached := 0
	node := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	defer node.Close()
	address, err := url.Parse(node.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", "169.254.169.254"} {
		w := outside(t)
		pod := newPod(func(p *v1.Pod) {
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
				Host: strings.Trim(host, "[]"), Port: intstr.FromInt(port),
			}}}
		})
		err := w.StartContainer(w.Context(), pod, w.sandbox(pod), first(pod))
		if err == nil || !strings.Contains(err.Error(), "is not allowed") {
			t.Errorf("%s: it ended with %v", host, err)
		}
	}
	if reached > 0 {
		t.Errorf("the node was asked %d times", reached)
	}
}

func TestAHookIsNotSentToAnotherHost(t *testing.T) {
	reached := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	defer other.Close()
	elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	server := httptest.NewServer(http.RedirectHandler(elsewhere, http.StatusFound))
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		t.Fatal(err)
	}
	w := outside(t)
	w.run(newPod(func(p *v1.Pod) {
		p.Spec.HostNetwork = true
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt(port)}}}
	}))
	if reached > 0 {
		t.Error("the hook was sent on")
	}
}

func TestWhatAFailedHookSaysIsCut(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := newPod(func(p *v1.Pod) {
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hi"}}}}
		})
		w.fake.exitCode, w.fake.output = 9, strings.Repeat("x", 1<<20)
		err := w.StartContainer(w.Context(), pod, w.sandbox(pod), first(pod))
		if err == nil || len(err.Error()) > 2000 {
			w.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}
