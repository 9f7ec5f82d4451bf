package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldnode/herald/cmd/herald/internal/config"
)

// TestLoad_UnsafePermissions loads files that other users could have modified.
func TestLoad_UnsafePermissions(t *testing.T) {
	for name, test := range map[string]struct {
		path string
		mode os.FileMode
		want string
	}{
		"file":                       {"c.yaml", 0o646, "read configuration: c.yaml is world-writable (mode 0646), so any user could configure the agent (chmod o-w c.yaml)"},
		"drop-in":                    {"d/10.conf", 0o602, "read configuration: d/10.conf is world-writable (mode 0602)"},
		"drop-ins":                   {"d", 0o707, "read drop-in directory: d is world-writable (mode 0707)"},
		"drop-ins of a subdirectory": {"d/more", 0o703, "read drop-in directory: d/more is world-writable (mode 0703)"},
		"kubeconfig":                 {"k", 0o606, "c.yaml:3: kubeconfig: DIR/k is world-writable (mode 0606)"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			if err := os.MkdirAll("d/more", 0o700); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{"c.yaml": identity + "kubeconfig: k\n", "d/10.conf": identity, "d/more/20.conf": identity, "k": ""} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := config.Load("c.yaml", "d", noFlags()); err != nil {
				t.Fatalf("before: got error %v", err)
			}
			if err := os.Chmod(test.path, test.mode); err != nil {
				t.Fatal(err)
			}
			_, err := config.Load("c.yaml", "d", noFlags())
			if want := strings.ReplaceAll(test.want, "DIR", dir); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got error %v, want %q", err, want)
			}
			if os.Geteuid() != 0 {
				return // only root can give files away
			}
			if err := os.Chmod(test.path, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(test.path, 1234, -1); err != nil {
				t.Fatal(err)
			}
			if _, err := config.Load("c.yaml", "d", noFlags()); err == nil || !strings.Contains(err.Error(), "is owned by user 1234") {
				t.Errorf("owner: got error %v", err)
			}
		})
	}
}

// TestNodeAgentConfig_InsecureAPI covers API servers that an attacker on the network can replace.
func TestNodeAgentConfig_InsecureAPI(t *testing.T) {
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(ca, 0o666); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		cluster string
		want    string
		allowed bool // with AllowInsecureAPI
	}{
		"https":          {"server: https://a.example:6443", "", true},
		"http":           {"server: http://a.example:8080", "server a.example:8080 must be an https URL", true},
		"no scheme":      {"server: a.example:8080", "server a.example:8080 must be an https URL", true},
		"loopback":       {"server: http://127.0.0.1:8001", "server 127.0.0.1:8001 must be an https URL", true},
		"not verified":   {"server: https://a.example\n    insecure-skip-tls-verify: true", "insecure-skip-tls-verify must not be set", true},
		"CA of any user": {"server: https://a.example\n    certificate-authority: " + ca, ca + " is world-writable (mode 0666)", false},
	} {
		t.Run(name, func(t *testing.T) {
			kubeconfig := filepath.Join(dir, "kubeconfig")
			text := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster:\n    " + test.cluster +
				"\ncontexts:\n- name: c\n  context: {cluster: c, user: u}\nusers:\n- name: u\n  user: {token: t}\n"
			if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c := config.Default()
			c.Kubeconfig = kubeconfig
			_, err := c.NodeAgentConfig()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
			c.AllowInsecureAPI = true
			if _, err := c.NodeAgentConfig(); (err == nil) != test.allowed {
				t.Errorf("AllowInsecureAPI: got error %v, want allowed %v", err, test.allowed)
			}
		})
	}
}
