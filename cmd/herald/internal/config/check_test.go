package config_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/heraldnode/herald/cmd/herald/internal/config"
)

// site is a directory with a configuration and certificates that have nothing wrong.
type site struct {
	t   *testing.T
	dir string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t, t.TempDir()}
	s.issue("client", time.Hour)
	s.issue("server", time.Hour)
	s.issue("ca", time.Hour)
	s.writeKubeconfig(&clientcmdapi.AuthInfo{ClientCertificate: s.path("client.crt"), ClientKey: s.path("client.key")})
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) write(name, content string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// issue writes a certificate that ends after this time, and its key.
func (s *site) issue(name string, life time.Duration) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	end := time.Now().Add(life)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: end.Add(-2 * time.Hour), NotAfter: end,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(name+".crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	s.write(name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

func (s *site) writeKubeconfig(user *clientcmdapi.AuthInfo) {
	s.t.Helper()
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: "https://api.example.com", CertificateAuthority: s.path("ca.crt")}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": user},
		Contexts:  map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("kubeconfig", string(content))
}

// check checks the configuration with these lines.
func (s *site) check(lines ...string) config.CheckResult {
	s.t.Helper()
	text := "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n" +
		"kubeconfig: kubeconfig\ndataDir: data\naddress: 127.0.0.1\ntlsCertFile: server.crt\ntlsPrivateKeyFile: server.key\n" +
		"authentication: {x509: {clientCAFile: ca.crt}}\n" + strings.Join(lines, "\n") + "\n"
	if !strings.Contains(text, "\nport:") {
		text += fmt.Sprintf("port: %d\nhealthzPort: 0\n", freePort(s.t))
	}
	s.write("herald.yaml", text)
	found, err := config.Check(s.t.Context(), s.path("herald.yaml"), "", config.Bind(pflag.NewFlagSet("test", pflag.ContinueOnError)), time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

// freePort returns a port that nobody listens on. The kernel does not give it to another process soon.
func freePort(t *testing.T) int {
	t.Helper()
	listener := listen(t)
	defer listener.Close()
	return portOf(listener)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(context.WithoutCancel(t.Context()), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func portOf(listener net.Listener) int { return listener.Addr().(*net.TCPAddr).Port }

// expect checks that there is one problem, and that it has all parts: file, field, remedy.
func expect(t *testing.T, found config.CheckResult, parts ...string) {
	t.Helper()
	if len(found.Problems) != 1 {
		t.Fatalf("got problems %q, want one", found.Problems)
	}
	for _, part := range parts {
		if text := found.Problems[0].Error(); !strings.Contains(text, part) {
			t.Errorf("got %s, want %q", text, part)
		}
	}
}

func TestCheck_NoProblems(t *testing.T) {
	found := newSite(t).check()
	if len(found.Problems) > 0 {
		t.Errorf("got %q", found.Problems)
	}
	if notes := strings.Join(found.Notes, "\n"); !strings.Contains(notes, "client.crt is valid until") || !strings.Contains(notes, "server.crt is valid until") {
		t.Errorf("got notes %s", notes)
	}
}

func TestCheck_ClientCertificate(t *testing.T) {
	t.Run("expired", func(t *testing.T) {
		s := newSite(t)
		s.issue("client", -time.Minute)
		expect(t, s.check(), "herald.yaml:3: kubeconfig: ", s.path("client.crt")+" expired at 20", "set bootstrapKubeconfig")
	})
	t.Run("missing", func(t *testing.T) {
		s := newSite(t)
		if err := os.Remove(s.path("client.crt")); err != nil {
			t.Fatal(err)
		}
		expect(t, s.check(), "herald.yaml:3: kubeconfig: ", s.path("client.crt"), "no such file")
	})
	t.Run("other key", func(t *testing.T) {
		s := newSite(t)
		s.writeKubeconfig(&clientcmdapi.AuthInfo{ClientCertificate: s.path("client.crt"), ClientKey: s.path("server.key")})
		expect(t, s.check(), "herald.yaml:3: kubeconfig: ", s.path("client.crt"), "private key does not match", s.path("server.key")+" the PEM key that belongs to it")
	})
	t.Run("no PEM", func(t *testing.T) {
		s := newSite(t)
		s.write("client.crt", "certificate")
		expect(t, s.check(), "herald.yaml:3: kubeconfig: ", s.path("client.crt"), "it must be a PEM certificate")
	})
	t.Run("no credentials", func(t *testing.T) {
		s := newSite(t)
		s.writeKubeconfig(&clientcmdapi.AuthInfo{})
		expect(t, s.check(), "herald.yaml:3: kubeconfig: ", s.path("kubeconfig"), "no credentials", "add a client certificate or a token")
	})
}

// A node that can renew its certificate, or ask for one, needs no other.
func TestCheck_Bootstrap(t *testing.T) {
	s := newSite(t)
	s.issue("client", -time.Minute)
	writeUserKubeconfig(t, s.path("bootstrap"), "https://api.example.com", clientcmdapi.AuthInfo{Token: "abcdef.0123456789abcdef"})
	const bootstrap = "bootstrapKubeconfig: bootstrap"
	if found := s.check(bootstrap); len(found.Problems) > 0 || !strings.Contains(strings.Join(found.Notes, "\n"), "will ask for a certificate") {
		t.Errorf("bootstrap token: got %q, notes %q", found.Problems, found.Notes)
	}
	if err := os.Remove(s.path("bootstrap")); err != nil {
		t.Fatal(err)
	}
	if found := s.check(bootstrap); len(found.Problems) != 2 || !strings.Contains(found.Problems[1].Error(), "kubeadm token create") {
		t.Errorf("no token: got %q", found.Problems)
	}
	if err := os.MkdirAll(s.path("data/pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	writePair(t, s.path("data/pki/kubelet-client-current.pem"), time.Now().Add(time.Hour))
	if found := s.check(bootstrap); len(found.Problems) > 0 {
		t.Errorf("rotated certificate: got %q", found.Problems)
	}
}

func TestCheck_Authorities(t *testing.T) {
	s := newSite(t)
	s.write("ca.crt", "no certificate\n")
	expect(t, s.check("port: 0", "healthzPort: 0"), ":3: kubeconfig: ") // without a server its files are not used
	found := s.check()
	if len(found.Problems) != 2 {
		t.Fatalf("got %q, want those of the kubeconfig and of the server", found.Problems)
	}
	for i, field := range []string{":3: kubeconfig: certificate-authority ", ":8: authentication.x509.clientCAFile: "} {
		for _, part := range []string{field + s.path("ca.crt") + " has no certificates", "/etc/kubernetes/pki/ca.crt"} {
			if got := found.Problems[i].Error(); !strings.Contains(got, part) {
				t.Errorf("got %s, want %q", got, part)
			}
		}
	}
	s.issue("ca", -time.Minute)
	if found := s.check(); len(found.Problems) != 2 || !strings.Contains(found.Problems[1].Error(), "all certificates have expired") {
		t.Errorf("got %q", found.Problems)
	}
}

func TestCheck_ServingCertificate(t *testing.T) {
	t.Run("expired", func(t *testing.T) {
		s := newSite(t)
		s.issue("server", -time.Minute)
		expect(t, s.check(), "herald.yaml:6: tlsCertFile: "+s.path("server.crt")+" expired at 20", "replace it and its key")
	})
	t.Run("other key", func(t *testing.T) {
		s := newSite(t)
		key, err := os.ReadFile(s.path("client.key"))
		if err != nil {
			t.Fatal(err)
		}
		s.write("server.key", string(key))
		expect(t, s.check(), "herald.yaml:6: tlsCertFile: "+s.path("server.crt")+" and "+s.path("server.key"), "does not match", "tlsPrivateKeyFile the PEM key")
	})
}

func TestCheck_Ports(t *testing.T) {
	s := newSite(t)
	taken := portOf(listen(t))
	expect(t, s.check(fmt.Sprintf("port: %d", taken), "healthzPort: 0"), fmt.Sprintf("herald.yaml:9: port: 127.0.0.1:%d is used by process %d (", taken, os.Getpid()),
		"stop it, or set another port")
	expect(t, s.check("port: 0", fmt.Sprintf("healthzPort: %d", taken)), ": healthzPort: ", "set another healthzPort")
	expect(t, s.check("port: 0", "healthzPort: 0", fmt.Sprintf("kubectlListen: 127.0.0.1:%d", taken)), ": kubectlListen: ", "is used by")
	free := freePort(t)
	expect(t, s.check(fmt.Sprintf("port: %d", free), fmt.Sprintf("healthzPort: %d", free)), ": healthzPort: ", "is the port of port too")
	if found := s.check("port: 0", fmt.Sprintf("healthzPort: %d", free), "healthzBindAddress: 192.0.2.123"); len(found.Problems) != 1 ||
		!strings.Contains(found.Problems[0].Error(), "is not an address of this machine") {
		t.Errorf("got %q", found.Problems)
	}
}

// The ports of the agent that runs with this configuration are not a problem.
func TestCheck_PortsOfRunningAgent(t *testing.T) {
	s := newSite(t)
	dir, err := os.MkdirTemp("", "herald") //nolint:usetesting // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "herald.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	found := s.check(fmt.Sprintf("port: %d", portOf(listen(t))), "healthzPort: 0", "listen: unix://"+filepath.Join(dir, "herald.sock"))
	if len(found.Problems) > 0 || !strings.Contains(strings.Join(found.Notes, "\n"), "is used by the agent of this configuration") {
		t.Errorf("got %q, notes %q", found.Problems, found.Notes)
	}
}
