//go:build metricsserver

// Package metricsserver_test lets a real metrics-server scrape a real Herald on its HTTPS port, with the permissions of its own
// manifest, and asks it with kubectl top through a real kube-apiserver. `make metricsserver` runs it: building metrics-server takes
// minutes, so that it is not part of make test.
package metricsserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/needs"
)

//go:embed objects.yaml
var objects string

const (
	nodeName   = "scraped"
	namespace  = "measured"
	proxyUser  = "front-proxy-client"
	resolution = "15s"
)

// cluster is a control plane whose API server passes requests for metrics.k8s.io on.
type cluster struct {
	*controlplane.ControlPlane
	t *testing.T
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	binaries, err := controlplane.Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	ca, cert, key := newProxyCertificate(t)
	cp, err := controlplane.Start(t.Context(), controlplane.Config{Binaries: binaries, APIServerArgs: []string{
		"--requestheader-client-ca-file=" + ca, "--requestheader-allowed-names=" + proxyUser, "--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + cert, "--proxy-client-key-file=" + key,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &cluster{cp, t}
}

// newProxyCertificate returns the files of an authority, and of a certificate and key with which the API server says that it is itself.
func newProxyCertificate(t *testing.T) (ca, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: proxyUser}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "proxy.crt"), filepath.Join(dir, "proxy.key")
	err = errors.Join(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: privateDER}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return cert, cert, key
}

func (c *cluster) kubectl(args ...string) (string, error) {
	command := exec.CommandContext(c.t.Context(), "kubectl", append([]string{"--kubeconfig", c.AdminKubeconfig()}, args...)...)
	out, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (c *cluster) must(args ...string) string {
	c.t.Helper()
	out, err := c.kubectl(args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// startMetricsServer starts metrics-server with the token of its service account.
func (c *cluster) startMetricsServer(port int) {
	c.t.Helper()
	dir := c.t.TempDir()
	binary := filepath.Join(dir, "metrics-server")
	build := exec.CommandContext(c.t.Context(), "go", "build", "-C", "program", "-o", binary, "sigs.k8s.io/metrics-server/cmd/metrics-server")
	if out, err := build.CombinedOutput(); err != nil {
		c.t.Fatalf("build metrics-server: %v: %s", err, out)
	}
	manifest := filepath.Join(dir, "objects.yaml")
	if err := os.WriteFile(manifest, []byte(strings.ReplaceAll(objects, "PORT", strconv.Itoa(port))), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.must("apply", "-f", manifest)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	token := strings.TrimSpace(c.must("create", "token", "metrics-server", "-n", "kube-system", "--duration", "1h"))
	for _, args := range [][]string{
		{"config", "set-cluster", "c", "--server", c.URL(), "--certificate-authority", c.CAFile()},
		{"config", "set-credentials", "metrics-server", "--token", token},
		{"config", "set-context", "c", "--cluster", "c", "--user", "metrics-server"}, {"config", "use-context", "c"},
	} {
		out, err := exec.CommandContext(c.t.Context(), "kubectl", append([]string{"--kubeconfig", kubeconfig}, args...)...).CombinedOutput()
		if err != nil {
			c.t.Fatalf("%v: %s", err, out)
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		c.t.Fatal(err)
	}
	command := exec.CommandContext(c.t.Context(), binary, "--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig,
		"--authorization-kubeconfig", kubeconfig, "--cert-dir", dir, "--secure-port", strconv.Itoa(port), "--bind-address", "127.0.0.1",
		"--kubelet-insecure-tls", "--kubelet-preferred-address-types", "InternalIP", "--kubelet-use-node-status-port", "--metric-resolution", resolution)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if content, _ := os.ReadFile(log.Name()); c.t.Failed() {
			c.t.Logf("metrics-server: %s", content[max(0, len(content)-8000):])
		}
	})
}

// kubectl top shows the node and its pods, measured by metrics-server on Herald's port.
func TestKubectlTop(t *testing.T) {
	needs.Containers(t)
	needs.Kubectl(t)
	herald, err := agents.BuildHerald(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	runtime := containerd.ForTest(t)
	address, err := runtime.HostIP()
	if err != nil {
		t.Fatal(err)
	}
	agent, err := herald.NewAgent(agents.Config{
		ControlPlane: c.ControlPlane, Containerd: runtime, NodeName: nodeName, NodeIP: address, Address: address,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log:\n%s", agent.LogTail())
		}
		if err := errors.Join(agent.Stop(), runtime.Close(), agent.RemoveCgroups()); err != nil {
			t.Error(err)
		}
	})
	if err := agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.startMetricsServer(freePort(t))
	admin, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	pod := heraldtest.NewPod("busy", heraldtest.WithContainers(v1.Container{
		Name: "main", Image: containerd.TestpodImage, ImagePullPolicy: v1.PullIfNotPresent, Command: []string{"/testpod", "pause"},
	}), func(pod *v1.Pod) {
		pod.Namespace, pod.UID, pod.Spec.NodeName = "", "", nodeName
		pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	})
	if _, err := admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"top nodes":                                    `(?m)^scraped +\d+m +\d+% +[1-9]\d*Mi +\d+%`,
		"top pods -n " + namespace:                     `(?m)^busy +\d+m +[1-9]\d*Mi`,
		"top pods --containers -n " + namespace:        `(?m)^busy +main +\d+m +[1-9]\d*Mi`,
		"get --raw /apis/metrics.k8s.io/v1beta1/nodes": `"name":"scraped"`,
	} {
		heraldtest.Eventually(t, func() error {
			out, err := c.kubectl(strings.Fields(args)...)
			if err != nil {
				return err
			}
			if !regexp.MustCompile(want).MatchString(out) {
				return fmt.Errorf("kubectl %s: got %s, want %s", args, out, want)
			}
			return nil
		})
		t.Logf("kubectl %s:\n%s", args, c.must(strings.Fields(args)...))
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
