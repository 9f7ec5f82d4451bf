package check_test

import (
	"context"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/heraldnode/herald/probe/check"
	"github.com/heraldnode/herald/probe/judge"
)

// withoutDescriptors does something while this process can open nothing more.
func withoutDescriptors(t *testing.T, do func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	for range 64 {
		hog, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		defer hog.Close()
	}
	do()
}

func TestF28ANodeThatHasNoDescriptorsLeftBlamesNoContainer(t *testing.T) {
	target, port := behaving(t, func(c net.Conn) { untilClosed(c) })
	for name, handler := range map[string]v1.ProbeHandler{
		"http":          {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port)}},
		"tcp":           {TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}},
		"grpc":          {GRPC: &v1.GRPCAction{Port: port}},
		"http, by name": {HTTPGet: &v1.HTTPGetAction{Host: "localhost", Port: intstr.FromInt32(port)}},
		"tcp, by name":  {TCPSocket: &v1.TCPSocketAction{Host: "localhost", Port: intstr.FromInt32(port)}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			checker := check.New(nil)
			withoutDescriptors(t, func() {
				if found := checker.Check(ctx, &v1.Probe{ProbeHandler: handler}, target); found.Result != judge.Error {
					t.Errorf("%+v", found)
				}
			})
		})
	}
}
