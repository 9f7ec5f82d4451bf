package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// writeKubeconfig returns the path of a kubeconfig for a cluster that does not exist.
func writeKubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// serverDefaults are the fields whose defaults depend on the kubeconfig.
type serverDefaults struct {
	Address     string
	Port        int
	Healthz     int
	Webhook     bool
	Mode        string
	HTTPS, HTTP string // addresses of the node agent
}

func TestSRV13_SRV15_ServerDefaults(t *testing.T) {
	kubeconfig := writeKubeconfig(t)
	standalone := "staticPodPath: /m\n"
	tests := map[string]struct {
		text string
		want serverDefaults
	}{
		"cluster": {"kubeconfig: " + kubeconfig + "\n", serverDefaults{
			"0.0.0.0", 10250, 10248, true, "Webhook", "0.0.0.0:10250", "127.0.0.1:10248",
		}},
		"cluster, switched off": {"kubeconfig: " + kubeconfig + "\nport: 0\nhealthzPort: 0\n", serverDefaults{"0.0.0.0", 0, 0, true, "Webhook", "", ""}},
		"cluster, other values": {"kubeconfig: " + kubeconfig + "\naddress: 127.0.0.1\nport: 1\nauthentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n", serverDefaults{
			"127.0.0.1", 1, 10248, false, "AlwaysAllow", "127.0.0.1:1", "127.0.0.1:10248",
		}},
		"no cluster":                  {standalone, serverDefaults{}},
		"no cluster, both are set":    {standalone + "address: ::1\nport: 10250\n", serverDefaults{"::1", 10250, 0, false, "", "[::1]:10250", ""}},
		"no cluster, only an address": {standalone + "address: ::1\n", serverDefaults{Address: "::1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := load(t, nil, identity+test.text)
			if err != nil {
				t.Fatal(err)
			}
			node, err := c.NodeAgentConfig()
			if err != nil {
				t.Fatal(err)
			}
			got := serverDefaults{
				c.Address, c.Port, c.HealthzPort, c.Authentication.Webhook.Enabled, c.Authorization.Mode,
				node.Server.Address, node.Server.HealthAddress,
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestServerFlags(t *testing.T) {
	c, err := load(t, []string{"--kubeconfig=" + writeKubeconfig(t), "--port=0", "--healthz-port=1"}, identity)
	if err != nil || c.Port != 0 || c.HealthzPort != 1 {
		t.Errorf("got ports %d and %d, error %v, want 0 and 1", c.Port, c.HealthzPort, err)
	}
}

func TestServer_Rejected(t *testing.T) {
	const served = "staticPodPath: /m\naddress: 127.0.0.1\nport: 10250\n"
	tests := map[string]struct{ text, want string }{
		"SRV-13: webhook tokens": {served + "authentication: {webhook: {enabled: true}}\n", "authentication.webhook.enabled: must not be true without a kubeconfig"},
		"SRV-13: webhook mode":   {served + "authorization: {mode: Webhook}\n", "authorization.mode: must not be Webhook without a kubeconfig"},
		"no address":             {"staticPodPath: /m\nport: 10250\n", "address: must be set together with port"},
		"rules of another mode":  {served + "authorization: {mode: AlwaysAllow, rules: [{users: [a], verbs: [get], subresources: [pods]}]}\n", "authorization.rules: must not be set with mode: AlwaysAllow"},
		"rule without a verb":    {served + "authorization: {rules: [{users: [a], subresources: [pods]}]}\n", "authorization.rules[0]: verbs: at least one"},
		"mode":                   {served + "authorization: {mode: RBAC}\n", `authorization.mode: invalid value "RBAC"`},
		"port":                   {served[:len(served)-2] + "00\n", "port: invalid value 102500"},
		"address":                {"staticPodPath: /m\naddress: localhost\n", `address: invalid value "localhost": must be an IP address`},
		"SRV-2: version":         {served + "tlsMinVersion: TLS12\n", `tlsMinVersion: unknown TLS version "TLS12"`},
		"SRV-2: suite":           {served + "tlsCipherSuites: [RSA]\n", `tlsCipherSuites[0]: unknown cipher suite "RSA"`},
		"certificate alone":      {served + "tlsCertFile: /c\n", "tlsCertFile: must be set together with tlsPrivateKeyFile"},
		"missing CA":             {served + "authentication: {x509: {clientCAFile: /nowhere}}\n", "clientCAFile: "},
		"missing tokens":         {served + "authentication: {tokenFile: /nowhere}\n", "tokenFile: "},
		"time":                   {served + "authentication: {webhook: {cacheTTL: -1s}}\n", "authentication.webhook.cacheTTL: must not be negative"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := load(t, nil, identity+test.text); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %s", err, test.want)
			}
		})
	}
}

// Fields of Herald's own, secrets and values that are not set are not part of /configz. parity/serverpaths decodes all of it.
func TestConfigz(t *testing.T) {
	c, err := load(t, nil, identity+"staticPodURL: https://u:secret@example.com/?token=secret\nstaticPodURLHeader: {Authorization: [secret]}\n"+
		"registerWithTaints: [{key: a, effect: NoSchedule}]\nkubeReserved: {cpu: 100m}\n")
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Configz()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "syncFrequency": "1m0s", "maxPods": 110.0,
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"cacheTTL": "2m0s", "enabled": false}, "x509": map[string]any{}},
		"kubeReserved":   map[string]any{"cpu": "100m"},
		"registerWithTaints": []any{
			map[string]any{"key": "a", "value": "", "effect": "NoSchedule"},
		},
	} {
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for _, name := range []string{"dataDir", "nodeName", "history", "alerting", "address"} {
		if value, found := got[name]; found {
			t.Errorf("got %s: %v", name, value)
		}
	}
	if strings.Contains(string(text), "secret") {
		t.Errorf("it has a secret: %s", text)
	}
}
