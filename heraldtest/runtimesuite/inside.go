package runtimesuite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

func variables(s *scene) {
	s.container().Env = []v1.EnvVar{{Name: "COLOUR", Value: "green"}, {Name: "LITERAL", Value: "$(COLOUR)"}}
	c := s.run(s.Programs.Wait)
	output, code, err := s.Runtime.Exec(s.Context(), c.ID, s.Programs.PrintEnv)
	if err != nil || code != 0 {
		s.Fatalf("printing the environment: code %d, %v", code, err)
	}
	for _, want := range []string{"COLOUR=green\n", "LITERAL=$(COLOUR)\n"} {
		if !strings.Contains(string(output), want) {
			s.Errorf("no %q in %q", want, output)
		}
	}
	_, code, err = s.Runtime.Exec(s.Context(), c.ID, s.Programs.Exit(5, ""))
	if err != nil || code != 5 {
		s.Errorf("a command that exits with 5: code %d, %v", code, err)
	}
}

func execCancelled(s *scene) {
	c := s.run(s.Programs.Wait)
	ctx, cancel := context.WithTimeout(s.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := s.Runtime.Exec(ctx, c.ID, s.Programs.IgnoreTERM); !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("the command ended with %v", err)
	}
}

func volumes(s *scene) {
	dir, name := tempFile(s.T, "in the volume")
	if err := os.Mkdir(filepath.Join(dir, "deeper"), 0o700); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "deeper", "down"), []byte("in the subPath"), 0o600); err != nil {
		s.Fatal(err)
	}
	s.pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}}}
	s.container().Env = []v1.EnvVar{{Name: "WHERE", Value: "deeper"}}
	s.container().VolumeMounts = []v1.VolumeMount{
		{Name: "data", MountPath: "/data", ReadOnly: true},
		{Name: "data", MountPath: "/part", SubPathExpr: "$(WHERE)"},
		{Name: "data", MountPath: "/file", SubPath: "deeper/down"},
	}
	s.pod.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"elsewhere.test"}}}
	c := s.run(s.Programs.Wait)
	for file, want := range map[string]string{
		"/data/" + name: "in the volume", "/part/down": "in the subPath", "/file": "in the subPath",
		"/etc/hosts": "192.0.2.1\telsewhere.test\n",
	} {
		output, code, err := s.Runtime.Exec(s.Context(), c.ID, s.Programs.PrintFile(file))
		if err != nil || code != 0 || !strings.Contains(string(output), want) {
			s.Errorf("%s has %q: code %d, %v", file, output, code, err)
		}
	}
}

// awaitOutput returns when the container has logged a line: its program handles signals then.
func (s *scene) awaitOutput() {
	s.Helper()
	s.eventually(func() error {
		for _, dir := range s.logs() {
			log, err := os.ReadFile(filepath.Join(dir, containerName, "0.log"))
			if err == nil && bytes.HasSuffix(log, []byte("\n")) {
				return nil
			}
		}
		return fmt.Errorf("nothing was logged")
	})
}
