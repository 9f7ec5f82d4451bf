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

// TestNodeAgentConfig_ReadableSecrets covers files with which other users could act as this node.
func TestNodeAgentConfig_ReadableSecrets(t *testing.T) {
	for name, test := range map[string]struct {
		user string
		path string
		mode os.FileMode
		want string
	}{
		"private key":                  {"{client-certificate: CERT, client-key: KEY}", "KEY", 0o644, "KEY can be read by every user (mode 0644), so others could act as this node (chmod go-r KEY)"},
		"private key of another group": {"{client-certificate: CERT, client-key: KEY}", "KEY", 0o640, "KEY can be read by group 1234 (mode 0640)"},
		"certificate":                  {"{client-certificate: CERT, client-key: KEY}", "CERT", 0o644, ""},
		"token":                        {"{tokenFile: TOKEN}", "TOKEN", 0o604, "TOKEN can be read by every user"},
		"kubeconfig with a token":      {"{token: hush}", "KUBECONFIG", 0o644, "KUBECONFIG can be read by every user"},
		"kubeconfig with a key":        {"{client-certificate-data: aGk=, client-key-data: aGk=}", "KUBECONFIG", 0o644, "KUBECONFIG can be read by every user"},
		"kubeconfig without secrets":   {"{tokenFile: TOKEN}", "KUBECONFIG", 0o644, ""},
		"plugin that others can modify": {
			"{exec: {apiVersion: client.authentication.k8s.io/v1, command: PLUGIN, interactiveMode: Never}}", "PLUGIN", 0o757,
			"PLUGIN is world-writable (mode 0757), so any user could configure the agent",
		},
		"plugin": {"{exec: {apiVersion: client.authentication.k8s.io/v1, command: PLUGIN, interactiveMode: Never}}", "PLUGIN", 0o755, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := publicDir(t)
			paths := map[string]string{}
			for _, name := range []string{"KEY", "CERT", "TOKEN", "PLUGIN", "KUBECONFIG"} {
				paths[name] = filepath.Join(dir, strings.ToLower(name))
			}
			resolve := func(text string) string {
				for name, path := range paths {
					text = strings.ReplaceAll(text, name, path)
				}
				return text
			}
			kubeconfig := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster: {server: \"https://a.example\"}\n" +
				"contexts:\n- name: c\n  context: {cluster: c, user: u}\nusers:\n- name: u\n  user: " + resolve(test.user) + "\n"
			for name, path := range paths {
				text := map[bool]string{true: kubeconfig}[name == "KUBECONFIG"]
				if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if strings.Contains(test.want, "group 1234") {
				if os.Geteuid() != 0 {
					return // only root can give files away
				}
				if err := os.Chown(paths[test.path], -1, 1234); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(paths[test.path], test.mode); err != nil {
				t.Fatal(err)
			}
			c := config.Default()
			c.Kubeconfig = paths["KUBECONFIG"]
			_, err := c.NodeAgentConfig()
			if want := resolve(test.want); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("got error %v, want %q", err, want)
			}
			if strings.Contains(test.want, "can be read") { // a directory that others cannot enter protects the file
				if err := os.Chmod(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if _, err := c.NodeAgentConfig(); err != nil {
					t.Errorf("private directory: got error %v", err)
				}
			}
		})
	}
}

// publicDir returns a directory that every user can enter. t.TempDir belongs to the user alone.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "herald-public-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
