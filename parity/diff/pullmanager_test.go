package diff_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubelet "k8s.io/kubernetes/pkg/kubelet/images/pullmanager"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/cri/pullmanager"
	"github.com/heraldnode/herald/internal/image"
)

// pullManagers are the kubelet's pull manager and Herald's, each with its own directory.
type pullManagers struct {
	kubelet *kubelet.PullManager
	herald  *pullmanager.Manager
}

// noImages is an image service without images. The kubelet lists them at start, for intents that were left.
type noImages struct{ kubecontainer.ImageService }

func (noImages) ListImages(context.Context) ([]kubecontainer.Image, error) { return nil, nil }

func newPullManagers(t *rapid.T, kubeletDir, heraldDir, policy string, allowlist []string) pullManagers {
	records, err := kubelet.NewFSPullRecordsAccessor(klog.Background(), kubeletDir)
	if err != nil {
		t.Fatal(err)
	}
	enforcer, err := kubelet.NewImagePullCredentialVerificationPolicy(kubeletconfig.ImagePullCredentialsVerificationPolicy(policy), allowlist)
	if err != nil {
		t.Fatal(err)
	}
	var managers pullManagers
	if managers.kubelet, err = kubelet.NewImagePullManager(context.Background(), records, enforcer, noImages{}, 1); err != nil {
		t.Fatal(err)
	}
	managers.herald, err = pullmanager.New(pullmanager.Config{
		Dir: filepath.Join(heraldDir, "image_manager"), Policy: pullmanager.Policy(policy), Allowlist: allowlist,
	})
	if err != nil {
		t.Fatal(err)
	}
	return managers
}

// pull pulls the image with the secret; nil is no credential, an empty ref a failure.
func (m pullManagers) pull(t *rapid.T, name, ref string, secret *pullmanager.Secret) {
	if err := m.kubelet.RecordPullIntent(klog.Background(), name); err != nil {
		t.Fatal(err)
	}
	begun, err := m.herald.Begin(parseImage(t, name), "")
	if err != nil {
		t.Fatal(err)
	}
	if ref == "" {
		m.kubelet.RecordImagePullFailed(context.Background(), name)
		begun.Fail("")
		return
	}
	credentials := &kubeletconfig.ImagePullCredentials{NodePodsAccessible: secret == nil}
	if secret != nil {
		credentials.KubernetesSecrets = kubeletSecrets([]pullmanager.Secret{*secret})
	}
	m.kubelet.RecordImagePulled(context.Background(), name, ref, credentials)
	begun.Succeed(ref, secret)
}

// compare fails unless both decide alike whether a pod may use the image.
func (m pullManagers) compare(t *rapid.T, name, ref string, secrets []pullmanager.Secret) {
	mustPull, err := m.kubelet.MustAttemptImagePull(context.Background(), name, ref,
		func() ([]kubeletconfig.ImagePullSecret, *kubeletconfig.ImagePullServiceAccount, error) {
			return kubeletSecrets(secrets), nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	decision := m.herald.Check(parseImage(t, name), ref, func() []pullmanager.Secret { return secrets })
	if decision.IsAllowed() == mustPull {
		t.Fatalf("image %s (%s), secrets %v: the kubelet pulls: %v, Herald: %s", name, ref, secrets, mustPull, decision)
	}
}

func parseImage(t *rapid.T, name string) image.Name {
	parsed, err := image.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func kubeletSecrets(secrets []pullmanager.Secret) []kubeletconfig.ImagePullSecret {
	var converted []kubeletconfig.ImagePullSecret
	for _, secret := range secrets {
		converted = append(converted, kubeletconfig.ImagePullSecret(secret))
	}
	return converted
}

// Both managers see the same history of pulls, decide alike, and go on alike with each other's files.
func TestIMG14_SameDecisions(t *testing.T) {
	names := []string{"app", "app:1", "reg.io/team/app:1", "reg.io/team/app@sha256:" + strings.Repeat("a", 64), "reg.io:5000/x:2"}
	refs := []string{"sha256:a", "sha256:b"}
	policies := []string{"NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"}
	secrets := rapid.Custom(func(t *rapid.T) pullmanager.Secret {
		return pullmanager.Secret{
			UID: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "uid"), Namespace: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace"),
			Name: "pull", CredentialHash: rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "hash"),
		}
	})
	root := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		dirs := []string{fmt.Sprintf("%s/%d-kubelet", root, run), fmt.Sprintf("%s/%d-herald", root, run)}
		defer func() { _ = os.RemoveAll(dirs[0]); _ = os.RemoveAll(dirs[1]) }()
		policy := rapid.SampledFrom(policies).Draw(t, "policy")
		var allowlist []string
		if policy == "NeverVerifyAllowlistedImages" {
			allowlist = rapid.SliceOf(rapid.SampledFrom([]string{"app", "reg.io/team/*", "reg.io/*", "reg.io:5000/x"})).Draw(t, "allowlist")
		}
		managers := newPullManagers(t, dirs[0], dirs[1], policy, allowlist)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			name, ref := rapid.SampledFrom(names).Draw(t, "name"), rapid.SampledFrom(refs).Draw(t, "ref")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				managers.pull(t, name, "", nil)
			case 1:
				managers.pull(t, name, ref, nil)
			case 2, 3:
				secret := secrets.Draw(t, "pulled with")
				managers.pull(t, name, ref, &secret)
			case 4: // a restart as the other agent
				dirs[0], dirs[1] = dirs[1], dirs[0]
				managers = newPullManagers(t, dirs[0], dirs[1], policy, allowlist)
			}
			for _, name := range names {
				managers.compare(t, name, ref, rapid.SliceOfN(secrets, 0, 3).Draw(t, "pod's secrets"))
			}
		}
	})
}
