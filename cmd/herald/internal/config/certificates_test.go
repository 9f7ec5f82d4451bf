package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/spf13/pflag"

	"github.com/heraldnode/herald/cmd/herald/internal/config"
	"github.com/heraldnode/herald/nodeagent"
)

// writeUserKubeconfig writes a kubeconfig of the server with the user.
func writeUserKubeconfig(t *testing.T, path, server string, user clientcmdapi.AuthInfo) {
	t.Helper()
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: server}}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": &user},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// writePair writes a certificate that ends at that time, and its key, to one file.
func writePair(t *testing.T, path string, end time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	content := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCRT2_WhichKubeconfig(t *testing.T) {
	const own, bootstrap = "https://own.example.com", "https://bootstrap.example.com"
	for name, test := range map[string]struct {
		kubeconfig string        // "", token, or pem
		life       time.Duration // of the certificate; 0: there is none
		bootstrap  bool          // the file exists
		want       string        // server, or part of the error
	}{
		"first start":                 {bootstrap: true, want: bootstrap},
		"nothing":                     {want: "no such file"},
		"valid certificate":           {kubeconfig: "pem", life: time.Hour, bootstrap: true, want: own},
		"valid, kubeadm removed it":   {kubeconfig: "pem", life: time.Hour, want: own},
		"crash before certificate":    {kubeconfig: "pem", bootstrap: true, want: bootstrap},
		"expired":                     {kubeconfig: "pem", life: -time.Hour, bootstrap: true, want: bootstrap},
		"expired, kubeadm removed it": {kubeconfig: "pem", life: -time.Hour, want: own},
		"token":                       {kubeconfig: "token", bootstrap: true, want: own},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string]string{"kubeconfig": filepath.Join(dir, "kubelet.conf"), "bootstrap-kubeconfig": filepath.Join(dir, "bootstrap.conf")}
			pair := filepath.Join(dir, "kubelet-client-current.pem")
			if test.life != 0 {
				writePair(t, pair, time.Now().Add(test.life))
			}
			switch test.kubeconfig {
			case "pem":
				writeUserKubeconfig(t, files["kubeconfig"], own, clientcmdapi.AuthInfo{ClientCertificate: pair, ClientKey: pair})
			case "token":
				writeUserKubeconfig(t, files["kubeconfig"], own, clientcmdapi.AuthInfo{Token: "t"})
			}
			if test.bootstrap {
				writeUserKubeconfig(t, files["bootstrap-kubeconfig"], bootstrap, clientcmdapi.AuthInfo{Token: "t"})
			}
			node, err := loadNode(files, dir)
			switch {
			case err != nil && !strings.Contains(err.Error(), test.want):
				t.Errorf("got %v, want %q", err, test.want)
			case err == nil && (node.API.Host != test.want || node.API.Host == bootstrap && node.API.BearerToken != ""):
				t.Errorf("got server %s with token %q, want %s", node.API.Host, node.API.BearerToken, test.want)
			case err == nil && node.Certificates != nodeagent.CertificateConfig{Bootstrap: files["bootstrap-kubeconfig"], Kubeconfig: files["kubeconfig"]}:
				t.Errorf("got %+v", node.Certificates)
			}
		})
	}
}

func loadNode(values map[string]string, dir string) (nodeagent.Config, error) {
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags := config.Bind(set)
	args := []string{"--node-name=n1", "--data-dir=" + dir}
	for name, value := range values {
		args = append(args, "--"+name+"="+value)
	}
	if err := set.Parse(args); err != nil {
		return nodeagent.Config{}, err
	}
	c, err := config.Load("", "", flags)
	if err != nil {
		return nodeagent.Config{}, err
	}
	return c.NodeAgentConfig()
}

func TestCRT2_BootstrapNeedsKubeconfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "bootstrap.conf")
	writeUserKubeconfig(t, path, "https://x.example.com", clientcmdapi.AuthInfo{Token: "t"})
	_, err := loadNode(map[string]string{"bootstrap-kubeconfig": path, "manifests": dir}, dir)
	if err == nil || !strings.Contains(err.Error(), "must not be set without kubeconfig") {
		t.Errorf("got %v", err)
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // the point of the test
		t.Fatal(err)
	}
	_, err = loadNode(map[string]string{"bootstrap-kubeconfig": path, "kubeconfig": filepath.Join(dir, "k")}, dir)
	if err == nil || !strings.Contains(err.Error(), "world-writable") {
		t.Errorf("got %v of a bootstrap kubeconfig that any user can modify", err)
	}
}

// What kubeadm writes for a kubelet is converted without a loss of what concerns certificates.
func TestCRT25_Convert(t *testing.T) {
	converted, ignored, err := config.Convert("config.yaml", `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
rotateCertificates: true
serverTLSBootstrap: true
`)
	if err != nil || len(ignored) > 0 || !strings.Contains(converted, "rotateCertificates: true\nserverTLSBootstrap: true\n") {
		t.Errorf("got %s, ignored %v, %v", converted, ignored, err)
	}
}
