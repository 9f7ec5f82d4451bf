package controlplane_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/parity/controlplane"
)

func readCA(t *testing.T) *x509.CertPool {
	t.Helper()
	content, err := os.ReadFile(shared.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		t.Fatalf("no certificate in %s", content)
	}
	return pool
}

// TestSRV42_KubeletClient is the call behind `kubectl logs`: the API server finds the node's address and port in the Node and
// identifies itself with a certificate.
func TestSRV42_KubeletClient(t *testing.T) {
	var user, path string
	agent := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, path = r.TLS.PeerCertificates[0].Subject.CommonName, r.URL.Path
		_, _ = w.Write([]byte("a line"))
	}))
	agent.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: readCA(t)}
	agent.StartTLS()
	defer agent.Close()

	pod := createPod(t, "answering")
	client := newClient(t, shared.AdminConfig())
	node, err := client.CoreV1().Nodes().Get(testContext(t), "answering", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(agent.Listener.Addr().String(), ":")
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	node.Status.Addresses = []v1.NodeAddress{
		{Type: v1.NodeHostName, Address: "answering.invalid"}, {Type: v1.NodeInternalIP, Address: host},
	}
	if _, err := client.CoreV1().Nodes().UpdateStatus(testContext(t), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	logs, err := client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &v1.PodLogOptions{}).DoRaw(testContext(t))
	if err != nil || string(logs) != "a line" {
		t.Fatalf("got logs %q, %v", logs, err)
	}
	if user != controlplane.KubeletClientUser || !strings.HasPrefix(path, "/containerLogs/"+pod.Namespace+"/"+pod.Name+"/") {
		t.Errorf("got user %s, path %s", user, path)
	}
}

// TestSRV42_KubeletClientMayEverything asks the questions that an agent asks before it answers the API server.
func TestSRV42_KubeletClientMayEverything(t *testing.T) {
	client := newClient(t, shared.NodeConfig("a"))
	for user, want := range map[string]bool{controlplane.KubeletClientUser: true, "somebody": false} {
		for _, subresource := range []string{"proxy", "log", "stats", "metrics"} {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               user,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes", Subresource: subresource, Name: "a"},
			}}
			got, err := client.AuthorizationV1().SubjectAccessReviews().Create(testContext(t), review, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Status.Allowed != want {
				t.Errorf("%s, nodes/%s: got %+v, want allowed=%v", user, subresource, got.Status, want)
			}
		}
	}
}

func TestIssueClient_Lifetime(t *testing.T) {
	end := time.Now().Add(-10 * time.Minute).Truncate(time.Second) // the authority is an hour old or more
	content, key := shared.IssueClient(controlplane.Identity{
		User: "late", Groups: []string{"one", "two"}, NotBefore: end.Add(-time.Hour), NotAfter: end,
	})
	block, rest := pem.Decode(content)
	if block == nil || len(bytes.TrimSpace(rest)) > 0 || !bytes.Contains(key, []byte("PRIVATE KEY")) {
		t.Fatalf("got %s", content)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if got := certificate.Subject; got.CommonName != "late" || len(got.Organization) != 2 || !certificate.NotAfter.Equal(end) {
		t.Errorf("got %v until %v", got, certificate.NotAfter)
	}
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: readCA(t), KeyUsages: usages, CurrentTime: end.Add(-time.Minute)}); err != nil {
		t.Errorf("before its end: %v", err)
	}
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: readCA(t), KeyUsages: usages}); err == nil {
		t.Error("after its end: got no error")
	}
}
