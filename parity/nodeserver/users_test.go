package nodeserver_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/heraldnode/herald/parity/controlplane"
)

// identity is how a client says who it is.
type identity struct {
	name              string // of a column
	certPEM, keyPEM   []byte
	token             string
	isUnauthenticated bool
}

// users are the clients of nodes' servers.
type users struct {
	none, foreign, expired, unknown        identity
	nobody, apiServer, metrics, proxyReads identity
	cluster                                *controlplane.ControlPlane
}

// of returns all users, with the node's own certificate.
func (u *users) of(n *node) []identity {
	cert, key := u.cluster.IssueClient(controlplane.Identity{User: "system:node:" + n.name, Groups: []string{"system:nodes"}})
	own := identity{name: "the node itself", certPEM: cert, keyPEM: key}
	return []identity{u.none, u.foreign, u.expired, u.unknown, u.nobody, own, u.metrics, u.proxyReads, u.apiServer}
}

func newUsers(t *testing.T, cluster *controlplane.ControlPlane, admin kubernetes.Interface) *users {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	withCertificate := func(name string, who controlplane.Identity) identity {
		cert, key := cluster.IssueClient(who)
		return identity{name: name, certPEM: cert, keyPEM: key}
	}
	u := &users{
		cluster:   cluster,
		none:      identity{name: "none"},
		unknown:   identity{name: "unknown token", token: "eyJhbGciOiJub25lIn0.e30."},
		nobody:    withCertificate("user without role", controlplane.Identity{User: "nobody"}),
		apiServer: withCertificate("kube-apiserver", controlplane.Identity{User: controlplane.KubeletClientUser}),
		expired: withCertificate("expired certificate", controlplane.Identity{
			User: controlplane.KubeletClientUser, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
		}),
	}
	u.foreign = identity{name: "certificate of another CA"}
	u.foreign.certPEM, u.foreign.keyPEM = selfSigned(t, controlplane.KubeletClientUser)
	for _, unauthenticated := range []*identity{&u.none, &u.foreign, &u.expired, &u.unknown} {
		unauthenticated.isUnauthenticated = true
	}
	u.metrics = identity{name: "`get nodes/metrics`", token: accountWithRole(ctx, t, admin, "metrics")}
	u.proxyReads = identity{name: "`get nodes/proxy`", token: accountWithRole(ctx, t, admin, "proxy")}
	return u
}

// accountWithRole returns a token of a new service account that may get the subresource of nodes.
func accountWithRole(ctx context.Context, t *testing.T, admin kubernetes.Interface, subresource string) string {
	t.Helper()
	name := "reads-" + subresource
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}}
	if _, err := admin.CoreV1().ServiceAccounts(account.Namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/" + subresource}, Verbs: []string{"get"}}},
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: name}},
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitRole(ctx, t, admin, &authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + account.Namespace + ":" + name,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Version: "v1", Resource: "nodes", Subresource: subresource, Name: "herald",
		},
	})
	request, err := admin.CoreV1().ServiceAccounts(account.Namespace).CreateToken(
		ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// awaitRole waits until the API server knows of a role. A node keeps a no for 30 seconds.
func awaitRole(ctx context.Context, t *testing.T, admin kubernetes.Interface, spec *authorizationv1.SubjectAccessReviewSpec) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(
			ctx, &authorizationv1.SubjectAccessReview{Spec: *spec}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// selfSigned returns a certificate with the user's name that no authority of the cluster has signed.
func selfSigned(t *testing.T, user string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user, Organization: []string{"system:masters"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}

// tls returns the configuration of a client that shows its certificate whatever authorities the server names.
func (i *identity) tls(t *testing.T) *tls.Config {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // the server's certificate is not the subject
	if len(i.certPEM) > 0 {
		pair, err := tls.X509KeyPair(i.certPEM, i.keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return config
}
