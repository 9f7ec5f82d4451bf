package pullmanager

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Secret is a credential and where it came from.
type Secret struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// CredentialHash is the SHA-256 of the credential, see Hash.
	CredentialHash string `json:"credentialHash"`
}

// The types below are the kubelet's: kubelet.config.k8s.io/v1beta1 ImagePullIntent and ImagePulledRecord. Its package is not
// imported, because it depends on the kubelet's logging and tracing.

type intent struct {
	metav1.TypeMeta `json:",inline"`
	Image           string `json:"image"`
}

type record struct {
	metav1.TypeMeta `json:",inline"`
	LastUpdatedTime metav1.Time `json:"lastUpdatedTime"`
	ImageRef        string      `json:"imageRef"`
	// CredentialMapping holds who may use the image, by its name without tag and digest (IMG-11).
	CredentialMapping map[string]access `json:"credentialMapping,omitempty"`
}

// access is who may use an image. The zero value grants access to no pod.
type access struct {
	KubernetesSecrets         []Secret         `json:"kubernetesSecrets,omitempty"`
	KubernetesServiceAccounts []serviceAccount `json:"kubernetesServiceAccounts,omitempty"`
	// NodePodsAccessible means every pod. It excludes the others.
	NodePodsAccessible bool `json:"nodePodsAccessible,omitempty"`
}

// serviceAccount is recorded by the kubelet for credential plugins. It is kept, and matches no pod.
type serviceAccount struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// maxSecrets limits the secrets that are added to a record without a pull. Namespaces come and go.
const maxSecrets = 100

// matches reports whether one of the secrets may use the image: the same credential in any secret, or the same secret with
// rotated content (IMG-15). It returns the secret that is worth recording, or nil.
func (a access) matches(secrets []Secret) (isMatch bool, unrecorded *Secret) {
	for _, secret := range secrets {
		for _, recorded := range a.KubernetesSecrets {
			sameCredential := secret.CredentialHash != "" && secret.CredentialHash == recorded.CredentialHash
			sameSecret := secret.UID != "" && secret.UID == recorded.UID && secret.Namespace == recorded.Namespace && secret.Name == recorded.Name
			if !sameCredential && !sameSecret {
				continue
			}
			if sameCredential && sameSecret || len(a.KubernetesSecrets) >= maxSecrets {
				return true, nil
			}
			return true, &secret
		}
	}
	return false, nil
}

// merge returns the record with additional access to the image name, and whether it changed. The original is not modified.
func (r record) merge(name string, added access) (record, bool) {
	current, found := r.CredentialMapping[name]
	merged := current
	switch {
	case current.NodePodsAccessible:
		return r, false // for good
	case added.NodePodsAccessible:
		merged = access{NodePodsAccessible: true}
	default:
		merged.KubernetesSecrets = mergeSecrets(current.KubernetesSecrets, added.KubernetesSecrets)
	}
	isUnchanged := slices.Equal(merged.KubernetesSecrets, current.KubernetesSecrets) && merged.NodePodsAccessible == current.NodePodsAccessible
	if isUnchanged && (found || len(added.KubernetesSecrets) == 0) {
		return r, false
	}
	r.CredentialMapping = maps.Clone(r.CredentialMapping)
	if r.CredentialMapping == nil {
		r.CredentialMapping = map[string]access{}
	}
	r.CredentialMapping[name] = merged
	return r, true
}

// mergeSecrets adds secrets, or replaces the hash of those that are known, sorted as in the kubelet.
func mergeSecrets(current, added []Secret) []Secret {
	merged := slices.Clone(current)
	for _, secret := range added {
		merged = slices.DeleteFunc(merged, func(known Secret) bool { return compareSecrets(known, secret) == 0 })
		merged = append(merged, secret)
	}
	if len(added) > 0 {
		slices.SortFunc(merged, compareSecrets)
	}
	return merged
}

func compareSecrets(a, b Secret) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}
