package nodeagent_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/nodeagent"
)

func TestDataDir_WritableByOthers(t *testing.T) {
	for mode, remedy := range map[os.FileMode]string{
		0o777: "chmod o-w ", 0o702: "chmod o-w ", os.ModeSticky | 0o777: "chmod o-w ", 0o770: "chmod g-w ",
	} {
		config := newConfig(t)
		if mode == 0o770 {
			if os.Geteuid() != 0 {
				continue // only root can give the directory to another group
			}
			if err := os.Chown(config.DataDir, 0, 1234); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(config.DataDir, mode); err != nil {
			t.Fatal(err)
		}
		_, err := nodeagent.New(config)
		if err == nil || !strings.Contains(err.Error(), remedy+config.DataDir) {
			t.Errorf("mode %o: got %v, want the remedy %q", mode, err, remedy)
		}
	}
	if os.Geteuid() != 0 {
		return // only root can change the owner
	}
	config := newConfig(t)
	if err := os.Chown(config.DataDir, 1234, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := nodeagent.New(config); err == nil || !strings.Contains(err.Error(), "owned by user 1234") {
		t.Errorf("got %v, want an error about the owner", err)
	}
}

func TestDataDir_Modes(t *testing.T) {
	config := newConfig(t, job)
	config.DataDir = filepath.Join(config.DataDir, "new")
	run(t, config, func(n *nodeagent.NodeAgent) {
		eventually(t, "the job to succeed", func() bool {
			pods := n.Agent.LocalPods()
			return len(pods) == 1 && pods[0].Status.Phase == v1.PodSucceeded
		})
		for _, path := range []string{"", "pods", "state", "process", "process.sock"} {
			info, err := os.Stat(filepath.Join(config.DataDir, path))
			if err != nil || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%q: %v, %v", path, info.Mode(), err)
			}
		}
	})
}

func TestNodeAgent_StaticPodURLOverTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(job)) }))
	defer server.Close()
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(caFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	config := newConfig(t)
	config.StaticPodPath, config.StaticPodURL, config.StaticPodURLCAFile = "", server.URL, caFile
	run(t, config, func(n *nodeagent.NodeAgent) {
		eventually(t, "the job of the URL to succeed", func() bool {
			pods := n.Agent.LocalPods()
			return len(pods) == 1 && pods[0].Status.Phase == v1.PodSucceeded
		})
	})
	config = newConfig(t)
	config.StaticPodPath, config.StaticPodURL = "", server.URL
	run(t, config, func(n *nodeagent.NodeAgent) {
		eventually(t, "a problem that names the certificate", func() bool {
			problems := n.Agent.Sources.Problems()
			return len(problems) == 1 && strings.Contains(problems[0].Message, "certificate")
		})
	})
}

func TestNodeAgent_TooManyContainers(t *testing.T) {
	manifest := strings.Replace(job, "containers: [", "containers: ["+strings.Repeat(`{name: nNUM, image: host, command: ["true"]}, `, 100), 1)
	for i := range 100 {
		manifest = strings.Replace(manifest, "nNUM", "n"+string(rune('a'+i/26))+string(rune('a'+i%26)), 1)
	}
	run(t, newConfig(t, manifest), func(n *nodeagent.NodeAgent) {
		eventually(t, "the rejection", func() bool {
			pods := n.Agent.LocalPods()
			return len(pods) == 1 && pods[0].Status.Reason == "TooManyContainers"
		})
	})
}
