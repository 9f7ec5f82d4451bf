package manager_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/cgroup/manager"
)

// Systemd creates the slices of its driver and knows their values, since it restores what it knows. CGR-3, CGR-4
func TestManager_Systemd(t *testing.T) {
	h := newHarness(t, cgroup.Host{V2: true}, func(h *harness) {
		h.driver = cgroup.DriverSystemd
		h.config = manager.WithSystemd(h.config, func(call string) error {
			h.units = append(h.units, call)
			return nil
		})
	})
	h.ensure(newPod("a-b", "125m", "64Mi"))
	want := []string{
		"set kubepods.slice",
		"set kubepods-burstable.slice CPUWeight=1", "set kubepods-besteffort.slice CPUWeight=1",
		"set kubepods-poda_b.slice CPUWeight=5 CPUQuotaPerSecUSec=130000 MemoryMax=67108864",
	}
	if !slices.Equal(h.units, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(h.units, "\n"), strings.Join(want, "\n"))
	}
	h.want("kubepods.slice/kubepods-poda_b.slice/cpu.max", "13000 100000") // as systemd writes it when it applies 130000
	h.units = nil
	h.ensure(newPod("a-b", "125m", "64Mi"))
	if len(h.units) > 0 {
		t.Errorf("got calls %q for values that are right", h.units)
	}
}

// Without systemd the slices are only named; the runtime creates them. A1
func TestManager_SystemdNotRunning(t *testing.T) {
	h := newHarness(t, cgroup.Host{V2: true}, func(h *harness) { h.driver = cgroup.DriverSystemd })
	h.ensure(newPod("a", "1", ""))
	if entries, _ := filepath.Glob(filepath.Join(h.mount, "kubepods*")); len(entries) > 0 {
		t.Errorf("got %v, want none", entries)
	}
	if got := strings.Count(h.logs.String(), "Systemd is not running"); got != 1 {
		t.Errorf("got %d warnings, want 1", got)
	}
}

// A systemd that does not answer delays the removal of a pod for 30 seconds, as in the kubelet; the cgroup is removed all the same.
func TestCGR22_HungSystemd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, cgroup.Host{V2: true}, func(h *harness) {
			h.driver = cgroup.DriverSystemd
			h.config = manager.WithHungSystemd(h.config)
		})
		dir := filepath.Join(h.mount, "kubepods.slice/kubepods-poda.slice")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := h.RemovePod(t.Context(), "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want a deadline", err)
		}
		if got := time.Since(began); got != 30*time.Second {
			t.Errorf("removal took %v, want 30s", got)
		}
		if err := h.RemovePod(t.Context(), "a"); err != nil {
			t.Errorf("second attempt: %v", err)
		}
	})
}

// Nor may it block the start of pods and the repair of values.
func TestCGR19_HungSystemd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, cgroup.Host{V2: true}, func(h *harness) {
			h.driver = cgroup.DriverSystemd
			h.config = manager.WithHungSystemd(h.config)
		})
		if err := h.EnsurePod(t.Context(), newPod("a", "1", "64Mi")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("EnsurePod: got error %v, want a deadline", err)
		}
		if err := h.Refresh(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Refresh: got error %v, want a deadline", err)
		}
	})
}

// The deadline ends the connection at any point of the conversation.
func TestManager_SystemdDeadline(t *testing.T) {
	tests := map[string]func(net.Conn){
		"no authentication": func(net.Conn) {},
		"no answer": func(connection net.Conn) {
			lines := bufio.NewScanner(connection)
			for lines.Scan() {
				switch {
				case strings.HasSuffix(lines.Text(), "AUTH"): // after a null byte
					_, _ = connection.Write([]byte("REJECTED EXTERNAL\r\n"))
				case strings.HasPrefix(lines.Text(), "AUTH EXTERNAL"):
					_, _ = connection.Write([]byte("OK 0123456789abcdef0123456789abcdef\r\n"))
				case lines.Text() == "NEGOTIATE_UNIX_FD":
					_, _ = connection.Write([]byte("AGREE_UNIX_FD\r\n"))
				}
			}
		},
	}
	for name, serve := range tests {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "private")
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				for {
					connection, err := listener.Accept()
					if err != nil {
						return
					}
					go serve(connection)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := manager.StopSlice(ctx, socket, "kubepods.slice"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got error %v, want a deadline", err)
			}
		})
	}
}
