// Package serverpaths_test compares the HTTPS servers of the real kubelet and of Herald: the same requests by the same users, directly and
// through a real kube-apiserver.
package serverpaths_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// node is a node with its agent.
type node struct {
	name  string
	agent *agents.Agent
}

// rig is a cluster with a node of each agent.
type rig struct {
	cluster         *recorder.Cluster
	admin           *kubernetes.Clientset
	kubelet, herald *node
	// address is that of both nodes. It is loopback if the machine has no other.
	address net.IP
}

func (r *rig) nodes() []*node { return []*node{r.kubelet, r.herald} }

// startRig starts both agents with the addition to their configurations, which both understand.
func startRig(t *testing.T, extra string) *rig {
	t.Helper()
	needs.Containers(t)
	kubelet, err := agents.BuildKubelet(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	herald, err := agents.BuildHerald(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{cluster: recorder.ForTest(t), address: address()}
	if r.admin, err = kubernetes.NewForConfig(r.cluster.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	r.kubelet, r.herald = r.start(t, kubelet, extra), r.start(t, herald, extra)
	return r
}

func (r *rig) start(t *testing.T, program agents.Program, extra string) *node {
	t.Helper()
	n := &node{name: "server-" + program.String()}
	runtime := containerd.ForTest(t)
	var err error
	n.agent, err = program.NewAgent(agents.Config{
		ControlPlane: r.cluster.ControlPlane, Containerd: runtime, NodeName: n.name, NodeIP: r.address.String(), Address: r.address.String(),
		HeraldConfig: extra, KubeletConfig: extra,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", n.name, n.agent.LogTail())
		}
		if err := errors.Join(n.agent.Stop(), runtime.Close(), n.agent.RemoveCgroups()); err != nil {
			t.Error(err)
		}
	})
	if err := n.agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

// address returns an IPv4 address of the machine at which the API server agrees to proxy (SRV-46), or a loopback address.
func address() net.IP {
	addresses, _ := net.InterfaceAddrs()
	for _, address := range addresses {
		if network, isIP := address.(*net.IPNet); isIP && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP
		}
	}
	return net.IPv4(127, 0, 0, 1)
}

// namespace has a pod with the name of each node.
const namespace = "server"

// createPods creates a pod on each node, and waits until both run.
func (r *rig) createPods(t *testing.T) {
	t.Helper()
	ctx, core := t.Context(), r.admin.CoreV1()
	_, namespaceErr := core.Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, accountErr := core.ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	if err := errors.Join(namespaceErr, accountErr); err != nil {
		t.Fatal(err)
	}
	for _, n := range r.nodes() {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: n.name},
			Spec: v1.PodSpec{
				NodeName: n.name, HostNetwork: true, AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(0)),
				Containers: []v1.Container{{Name: "main", Image: containerd.TestpodImage, Command: []string{"/testpod", "pause"}}},
			},
		}
		if _, err := core.Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range r.nodes() {
		heraldtest.Eventually(t, func() error {
			pod, err := core.Pods(namespace).Get(ctx, n.name, metav1.GetOptions{})
			if err == nil && pod.Status.Phase != v1.PodRunning {
				err = errors.New(n.name + " is " + string(pod.Status.Phase))
			}
			return err
		})
	}
}

// answer is what a client sees.
type answer struct {
	Code        int
	Type, Allow string
	Body        string
}

// client returns a client with the certificate of the user, or without one for "".
func (r *rig) client(t *testing.T, user string) *http.Client {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true} // the kubelet's certificate has no addresses
	if user != "" {
		cert, key := r.cluster.IssueClient(controlplane.Identity{User: user})
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// ask sends a request to the node. headers are names and values.
func (n *node) ask(t *testing.T, client *http.Client, method, path string, headers ...string) answer {
	t.Helper()
	got, err := send(t.Context(), client, method, "https://"+n.agent.HTTPSAddress()+path, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func send(ctx context.Context, client *http.Client, method, url string, headers ...string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header.Get("Content-Type"), response.Header.Get("Allow"), string(body)}, err
}
