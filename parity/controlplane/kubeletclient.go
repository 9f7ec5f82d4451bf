package controlplane

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// KubeletClientUser is the user that the API server is when it calls a node's agent, for `kubectl logs` for instance. It has the role
// system:kubelet-api-admin, which allows everything that an agent serves.
const KubeletClientUser = "kube-apiserver-kubelet-client"

// Identity is a user with a client certificate.
type Identity struct {
	User   string
	Groups []string
	// NotBefore and NotAfter bound the certificate's lifetime. They default to one that no test outlasts.
	NotBefore, NotAfter time.Time
}

// IssueClient issues a client certificate by the authority in CAFile and returns it with its key, both as PEM.
func (cp *ControlPlane) IssueClient(identity Identity) (cert, key []byte) {
	pair := cp.ca.issueIdentity(identity)
	return pair.cert, pair.key
}

// bindKubeletClient gives the API server its role.
func (cp *ControlPlane) bindKubeletClient(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		return err
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: KubeletClientUser},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: KubeletClientUser}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("bind the role of %s: %w", KubeletClientUser, err)
	}
	return nil
}
