// Package certificates_test lets a node of Herald join a real cluster with a bootstrap token: kube-apiserver with NodeRestriction, and
// kube-controller-manager, which approves and signs client certificates, as kubeadm sets them up.
package certificates_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/program"
)

const (
	nodeName = "joined"
	nodeIP   = "127.0.0.1"
	token    = "abcdef.0123456789abcdef"
	group    = "system:bootstrappers:test:nodes"

	// life is that of the certificates: they are rotated every 42 to 54 seconds.
	life = time.Minute
	// hangTimeout only ends a hang.
	hangTimeout = 5 * time.Minute
)

// fixture is a cluster and a node that joins it.
type fixture struct {
	*testing.T
	cluster *controlplane.ControlPlane
	client  kubernetes.Interface
	dir     string
	agent   *controlplane.Server
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	binaries, err := controlplane.Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "cluster")
	cluster, err := controlplane.Start(t.Context(), controlplane.Config{Binaries: binaries, Dir: dir, APIServerArgs: []string{
		"--enable-bootstrap-token-auth", "--kubelet-certificate-authority=" + filepath.Join(dir, "pki", "ca.crt"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, cluster: cluster, client: client, dir: t.TempDir()}
	f.allowBootstrap()
	f.newAgent()
	return f
}

// allowBootstrap creates the token and the roles, as kubeadm init does.
func (f *fixture) allowBootstrap() {
	f.Helper()
	f.eventually("namespace kube-system", func(ctx context.Context) error {
		_, err := f.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		return err
	})
	id, secret, _ := strings.Cut(token, ".")
	_, err := f.client.CoreV1().Secrets(metav1.NamespaceSystem).Create(f.Context(), &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id}, Type: "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "auth-extra-groups": group,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		f.Fatal(err)
	}
	for role, subject := range map[string]string{
		"system:node-bootstrapper": group,
		"system:certificates.k8s.io:certificatesigningrequests:nodeclient":     group,
		"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": "system:nodes",
	} {
		f.eventually("role "+role, func(ctx context.Context) error {
			_, err := f.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll("test:"+role, ":", "-")},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: subject}},
			}, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
}

func (f *fixture) path(name string) string { return filepath.Join(f.dir, name) }

func (f *fixture) kubeconfig() string { return f.path("kubelet.conf") }

func (f *fixture) current(prefix string) string { return f.path("pki/" + prefix + "-current.pem") }

// newAgent prepares an agent that runs pods as processes of the machine.
func (f *fixture) newAgent() {
	f.Helper()
	binary, err := program.Herald(f.Context(), f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	f.writeBootstrap()
	port, err := freePort()
	if err != nil {
		f.Fatal(err)
	}
	config := fmt.Sprintf(`apiVersion: heraldnode.github.io/v1alpha1
kind: HeraldConfiguration
nodeName: %s
nodeIP: %s
kubeconfig: %s
bootstrapKubeconfig: %s
certDir: %s
rotateCertificates: true
serverTLSBootstrap: true
dataDir: %s
runtime: process
allowAPIPods: true
address: %s
port: %d
healthzPort: 0
authentication: {x509: {clientCAFile: %s}}
`, nodeName, nodeIP, f.kubeconfig(), f.path("bootstrap.conf"), f.path("pki"), f.path("data"),
		nodeIP, port, f.cluster.CAFile())
	if err := os.WriteFile(f.path("config.yaml"), []byte(config), 0o600); err != nil {
		f.Fatal(err)
	}
	f.agent = f.cluster.NewServer(controlplane.ServerConfig{
		Name: "herald", Command: []string{binary, "run", "--config", f.path("config.yaml")}, Env: []string{"PATH=" + os.Getenv("PATH")},
		Ready: func(context.Context) error { return nil }, // its work shows
	})
}

func freePort() (int, error) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.ParseIP(nodeIP)})
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func (f *fixture) writeBootstrap() {
	f.Helper()
	if err := f.cluster.BootstrapKubeconfig(f.path("bootstrap.conf"), token); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) startAgent() {
	f.Helper()
	if err := f.agent.Start(f.Context()); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) stopAgent() {
	f.Helper()
	if err := f.agent.Stop(); err != nil {
		f.Fatal(err)
	}
}

// startSigner starts the controllers that approve and sign.
func (f *fixture) startSigner() {
	f.Helper()
	binary, err := controlplane.BuildControllerManager(f.Context(), os.Stderr)
	if err != nil {
		f.Fatal(err)
	}
	signer, err := f.cluster.NewSigner(binary, life)
	if err != nil {
		f.Fatal(err)
	}
	if err := signer.Start(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if f.Failed() {
			f.Logf("end of the controller manager's log:\n%s", signer.LogTail())
		}
	})
}

func (f *fixture) eventually(what string, condition func(ctx context.Context) error) {
	f.Helper()
	var last error
	err := wait.PollUntilContextTimeout(f.Context(), 200*time.Millisecond, hangTimeout, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	})
	if err != nil {
		f.Fatalf("waiting for %s: %v", what, last)
	}
}

// requests returns the names of the signing requests of this signer.
func (f *fixture) requests(signer string) []string {
	f.Helper()
	list, err := f.client.CertificatesV1().CertificateSigningRequests().List(f.Context(), metav1.ListOptions{})
	if err != nil {
		f.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].Spec.SignerName == signer {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// waitReady waits until the node renews its lease and is Ready.
func (f *fixture) waitReady() {
	f.Helper()
	var before metav1.MicroTime
	f.eventually("the node to be Ready and to renew its lease", func(ctx context.Context) error {
		node, err := f.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		isReady := slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
			return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
		})
		lease, err := f.client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil || lease.Spec.RenewTime == nil || !isReady {
			return fmt.Errorf("ready: %v, lease: %w", isReady, err)
		}
		if before.IsZero() {
			before = *lease.Spec.RenewTime
		}
		if !lease.Spec.RenewTime.After(before.Time) {
			return errors.New("the lease is not renewed")
		}
		return nil
	})
}

// runPod creates a pod and waits until the node reports that it runs.
func (f *fixture) runPod(name string) {
	f.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{
			NodeName: nodeName, HostNetwork: true, Containers: []v1.Container{{Name: "main", Image: "host", Command: []string{"sleep", "100000"}}},
			TerminationGracePeriodSeconds: new(int64(1)),
		},
	}
	if _, err := f.client.CoreV1().Pods(metav1.NamespaceDefault).Create(f.Context(), pod, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	f.eventually("pod "+name+" to run", func(ctx context.Context) error {
		pod, err := f.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != v1.PodRunning {
			err = fmt.Errorf("phase %s, reason %s %s", pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
		}
		return err
	})
}

// removePod deletes a pod and waits until the node has removed it.
func (f *fixture) removePod(name string) {
	f.Helper()
	if err := f.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(f.Context(), name, metav1.DeleteOptions{}); err != nil {
		f.Fatal(err)
	}
	f.eventually("pod "+name+" to be removed", func(ctx context.Context) error {
		_, err := f.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there: %w", err)
	})
}

// certificate returns the certificate in a PEM file.
func readCertificate(path string) (*x509.Certificate, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("%s has no PEM", path)
	}
	return x509.ParseCertificate(block.Bytes)
}

// waitRotated waits until the current certificate is another one than before, and returns it.
func (f *fixture) waitRotated(prefix string, before *x509.Certificate) *x509.Certificate {
	f.Helper()
	var now *x509.Certificate
	f.eventually("a new "+prefix+" certificate", func(context.Context) (err error) {
		if now, err = readCertificate(f.current(prefix)); err == nil && before != nil && now.Equal(before) {
			err = errors.New("it is still the old one")
		}
		return err
	})
	return now
}

func TestBootstrap(t *testing.T) {
	f := newFixture(t)
	f.Cleanup(func() {
		if f.Failed() {
			f.Logf("end of the agent's log:\n%s", f.agent.LogTail())
		}
	})
	f.startAgent()
	f.testPending()
	f.startSigner()
	first := f.waitRotated("kubelet-client", nil)
	f.waitReady()
	if err := os.Remove(f.path("bootstrap.conf")); err != nil { // as kubeadm does
		t.Fatal(err)
	}
	if requests := f.requests(certificatesv1.KubeAPIServerClientKubeletSignerName); len(requests) == 0 {
		t.Error("no signing request is left")
	}
	f.checkKubeconfig()
	f.runPod("first")
	t.Cleanup(func() { f.stopAgent() })
	f.testServing()
	f.testRotation(first)
	f.testExpired()
	f.removePod("first")
}

// While nobody signs, there is one request, also after a restart (CRT-6), and the kubeconfig names the certificate to come (CRT-2).
func (f *fixture) testPending() {
	const signer = certificatesv1.KubeAPIServerClientKubeletSignerName
	f.eventually("a signing request", func(context.Context) error {
		if len(f.requests(signer)) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	before := f.requests(signer)
	f.stopAgent()
	f.startAgent()
	f.eventually("the agent to find its request", func(context.Context) error {
		if strings.Count(f.agent.LogTail(), "Starting node agent") < 2 {
			return errors.New("it has not started again")
		}
		return nil
	})
	time.Sleep(3 * time.Second) // in which a second request would appear
	if after := f.requests(signer); !slices.Equal(after, before) || len(after) != 1 {
		f.Fatalf("got requests %v, before the restart %v, want one", after, before)
	}
	if _, err := os.Stat(f.current("kubelet-client")); !errors.Is(err, fs.ErrNotExist) {
		f.Errorf("got %v of a certificate that nobody signed", err)
	}
}

// checkKubeconfig uses the kubeconfig as kubeadm does, which waits until it loads with its certificate.
func (f *fixture) checkKubeconfig() {
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig())
	if err != nil {
		f.Fatal(err)
	}
	if config.CertFile != f.current("kubelet-client") || config.KeyFile != config.CertFile || config.BearerToken != "" {
		f.Errorf("got %s, %s, token %q", config.CertFile, config.KeyFile, config.BearerToken)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().Get(f.Context(), nodeName, metav1.GetOptions{}); err != nil {
		f.Errorf("the kubeconfig of the node: %v", err)
	}
}

// The API server reads logs, for which it verifies the node's serving certificate: it rejects the self-signed one, and accepts the one
// that somebody has approved, which is for the node's addresses and of the cluster's authority (CRT-20, CRT-21).
func (f *fixture) testServing() {
	if err := f.readLogs(f.Context()); err == nil {
		f.Error("the API server accepts a certificate that nobody has signed")
	}
	f.eventually("the API server to accept the signed certificate", func(ctx context.Context) error {
		if err := f.approveServing(ctx); err != nil { // again when it is renewed
			return err
		}
		return f.readLogs(ctx)
	})
	serving := f.waitRotated("kubelet-server", nil)
	for _, host := range []string{nodeIP, nodeName} {
		if err := serving.VerifyHostname(host); err != nil {
			f.Error(err)
		}
	}
}

func (f *fixture) readLogs(ctx context.Context) error {
	_, err := f.client.CoreV1().Pods(metav1.NamespaceDefault).GetLogs("first", &v1.PodLogOptions{}).DoRaw(ctx)
	return err
}

// approveServing approves all requests for serving certificates.
func (f *fixture) approveServing(ctx context.Context) error {
	csrs := f.client.CertificatesV1().CertificateSigningRequests()
	for _, name := range f.requests(certificatesv1.KubeletServingSignerName) {
		request, err := csrs.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(request.Status.Conditions) > 0 {
			continue
		}
		request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateApproved, Status: v1.ConditionTrue, Reason: "Test", LastUpdateTime: metav1.Now(),
		}}
		if _, err := csrs.UpdateApproval(ctx, name, request, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// The certificate is replaced twice while pods come and go, also over a restart, and with one request for each (CRT-7, CRT-8).
func (f *fixture) testRotation(first *x509.Certificate) {
	second := f.waitRotated("kubelet-client", first)
	f.runPod("second")
	f.stopAgent()
	f.startAgent()
	third := f.waitRotated("kubelet-client", second)
	f.removePod("second")
	f.waitReady()
	if !third.NotAfter.After(second.NotAfter) || !second.NotAfter.After(first.NotAfter) {
		f.Errorf("got certificates until %v, %v and %v", first.NotAfter, second.NotAfter, third.NotAfter)
	}
	files, err := filepath.Glob(f.path("pki/kubelet-client-2*.pem"))
	if err != nil || len(files) > 2 {
		f.Errorf("got %v, %v, want the current certificate and its predecessor", files, err)
	}
}

// The machine was off until after the end of its certificate, and the bootstrap kubeconfig is gone: the agent says what to do, and
// continues when it is done (CRT-9, CRT-10).
func (f *fixture) testExpired() {
	f.stopAgent()
	last, err := readCertificate(f.current("kubelet-client"))
	if err != nil {
		f.Fatal(err)
	}
	time.Sleep(time.Until(last.NotAfter) + time.Second)
	f.startAgent()
	f.eventually("the agent to say what to do", func(context.Context) error {
		log := f.agent.LogTail()
		for _, want := range []string{"kubelet-client-current.pem expired at", "write a kubeconfig with a new bootstrap token to " + f.path("bootstrap.conf")} {
			if !strings.Contains(log, want) {
				return fmt.Errorf("the log lacks %q", want)
			}
		}
		return nil
	})
	f.writeBootstrap()
	f.waitRotated("kubelet-client", last)
	f.waitReady()
}
