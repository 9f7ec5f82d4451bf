package pullmanager_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/cri/pullmanager"
	"github.com/heraldnode/herald/internal/image"
)

var (
	good    = pullmanager.Secret{UID: "1", Namespace: "a", Name: "good", CredentialHash: "h1"}
	rotated = pullmanager.Secret{UID: "1", Namespace: "a", Name: "good", CredentialHash: "h2"}
	copied  = pullmanager.Secret{UID: "2", Namespace: "b", Name: "copied", CredentialHash: "h1"}
	other   = pullmanager.Secret{UID: "3", Namespace: "b", Name: "other", CredentialHash: "h3"}
)

func newManager(t *testing.T, dir string) *pullmanager.Manager {
	t.Helper()
	manager, err := pullmanager.New(pullmanager.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return manager
}

func parse(t *testing.T, name string) image.Name {
	t.Helper()
	parsed, err := image.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func begin(t *testing.T, m *pullmanager.Manager, name, present string) *pullmanager.Pull {
	t.Helper()
	pull, err := m.Begin(parse(t, name), present)
	if err != nil {
		t.Fatal(err)
	}
	return pull
}

func check(t *testing.T, m *pullmanager.Manager, name, ref string, secrets ...pullmanager.Secret) bool {
	t.Helper()
	return m.Check(parse(t, name), ref, func() []pullmanager.Secret { return secrets }).IsAllowed()
}

func TestIMG15_Match(t *testing.T) {
	m := newManager(t, t.TempDir())
	begin(t, m, "reg.io/app:1", "").Succeed("id", &good)
	for _, step := range []struct {
		name    string
		image   string
		secrets []pullmanager.Secret
		want    bool
	}{
		{"no secret", "reg.io/app:1", nil, false},
		{"other secret", "reg.io/app:1", []pullmanager.Secret{other}, false},
		{"other name of the image", "reg.io/copy:1", []pullmanager.Secret{good}, false},
		{"other tag", "reg.io/app:2", []pullmanager.Secret{good}, true},
		{"same credential", "reg.io/app:1", []pullmanager.Secret{other, copied}, true},
		{"rotated secret", "reg.io/app:1", []pullmanager.Secret{rotated}, true},
		{"only the rotated credential is left", "reg.io/app:1", []pullmanager.Secret{{UID: "9", CredentialHash: "h2"}}, true},
		{"recorded by its copy", "reg.io/app:1", []pullmanager.Secret{{UID: "2", Namespace: "b", Name: "copied", CredentialHash: "h9"}}, true},
		{"secret without identity", "reg.io/app:1", []pullmanager.Secret{{CredentialHash: "h8"}}, false},
		{"empty hash", "reg.io/app:1", []pullmanager.Secret{{UID: "8"}}, false},
	} {
		if got := check(t, m, step.image, "id", step.secrets...); got != step.want {
			t.Errorf("%s: got %v, want %v", step.name, got, step.want)
		}
	}
}

func TestIMG11_AccessibleToAllPods(t *testing.T) {
	m := newManager(t, t.TempDir())
	begin(t, m, "reg.io/app:1", "").Succeed("id", &good)
	begin(t, m, "reg.io/app:1", "id").Succeed("id", nil)
	begin(t, m, "reg.io/app:1", "id").Succeed("id", &other)
	if !check(t, m, "reg.io/app:1", "id") {
		t.Error("an image that was pulled without a credential is not accessible")
	}
}

// The kubelet compares the names of intents as they are written.
func TestIMG13_IntentNames(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	tests := map[string]struct {
		pulled, name string
		isPreloaded  bool
	}{
		"same":              {"reg.io/app:1", "reg.io/app:1", false},
		"default tag":       {"reg.io/app", "reg.io/app:latest", false},
		"short name":        {"app", "docker.io/library/app:latest", false},
		"digest of a tag":   {"reg.io/app:1", "reg.io/app" + digest, false},
		"image ID":          {"reg.io/app:1", "sha256:" + strings.Repeat("b", 64), false},
		"other tag":         {"reg.io/app:1", "reg.io/app:2", true},
		"other repository":  {"reg.io/app:1", "reg.io/tool:1", true},
		"other registry":    {"reg.io/app:1", "other.io/app:1", true},
		"longer repository": {"reg.io/app:1", "reg.io/app/tool:1", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			m := newManager(t, dir)
			pull := begin(t, m, test.pulled, "")
			if got := check(t, m, test.name, "id"); got != test.isPreloaded {
				t.Errorf("during the pull: got allowed %v, want %v", got, test.isPreloaded)
			}
			if got := check(t, newManager(t, dir), test.name, "id"); got != test.isPreloaded {
				t.Errorf("after a restart: got allowed %v, want %v", got, test.isPreloaded)
			}
			pull.Fail("")
			if !check(t, m, test.name, "id") {
				t.Error("after a failed pull: an image of others is not allowed")
			}
		})
	}
}

func TestIMG12_ConcurrentPulls(t *testing.T) {
	dir := t.TempDir()
	m := newManager(t, dir)
	first, second := begin(t, m, "app", ""), begin(t, m, "app", "")
	first.Fail("")
	if files := list(t, dir, "pulling"); len(files) != 1 {
		t.Errorf("one pull left: got %d intents, want 1", len(files))
	}
	second.Succeed("id", &good)
	if files := list(t, dir, "pulling"); len(files) != 0 {
		t.Errorf("no pull left: got %d intents, want none", len(files))
	}
}

// A failed pull does not take an image away that the node had before.
func TestIMG12_FailedPullOfPreloadedImage(t *testing.T) {
	m := newManager(t, t.TempDir())
	begin(t, m, "app", "id").Fail("id")
	if !check(t, m, "app", "id") {
		t.Error("the preloaded image is not allowed any more")
	}
	begin(t, m, "app", "id").Fail("other")
	if check(t, m, "app", "other") {
		t.Error("an image that appeared during the pull is allowed")
	}
}

func TestIMG14_UnreadableRecord(t *testing.T) {
	dir := t.TempDir()
	m := newManager(t, dir)
	begin(t, m, "app", "").Succeed("id", nil)
	file := filepath.Join(dir, "pulled", list(t, dir, "pulled")[0])
	for _, content := range []string{"", "{}", `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"id","new":1}`} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if check(t, m, "app", "id", good) {
			t.Errorf("record %q: the image is allowed", content)
		}
	}
	begin(t, m, "app", "id").Succeed("id", &good)
	if !check(t, m, "app", "id", good) {
		t.Error("the record was not replaced by a new pull")
	}
}

func TestIMG10_Files(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image_manager")
	m := newManager(t, dir)
	pull := begin(t, m, "app", "")
	want := []string{"sha256-a172cedcae47474b615c54d510a5d84a8dea3032e958587430b413538be3f333"}
	if diff := cmp.Diff(want, list(t, dir, "pulling")); diff != "" {
		t.Error(diff)
	}
	pull.Succeed("id", &good)
	for path, mode := range map[string]os.FileMode{
		dir: 0o700, dir + "/pulling": 0o700, dir + "/pulled": 0o700, dir + "/pulled/" + list(t, dir, "pulled")[0]: 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: got %v, error %v; want mode %v", path, info, err, mode)
		}
	}
}

// A node whose directory is changed does not forget who pulled its images.
func TestIMG10_FormerDir(t *testing.T) {
	former, dir := t.TempDir(), t.TempDir()
	before := newManager(t, former)
	begin(t, before, "reg.io/app:1", "").Succeed("id", &good)
	begin(t, before, "reg.io/tool:1", "").Abandon()
	m, err := pullmanager.New(pullmanager.Config{Dir: dir, FormerDir: former})
	if err != nil {
		t.Fatal(err)
	}
	if check(t, m, "reg.io/app:1", "id") || !check(t, m, "reg.io/app:1", "id", good) || check(t, m, "reg.io/tool:1", "other") {
		t.Error("a former record or intent does not count")
	}
	begin(t, m, "reg.io/tool:1", "").Fail("")
	begin(t, m, "reg.io/app:1", "id").Succeed("id", &other)
	if !check(t, m, "reg.io/tool:1", "other") || !check(t, m, "reg.io/app:1", "id", good) || !check(t, m, "reg.io/app:1", "id", other) {
		t.Error("a former record was lost, or a former intent was not removed")
	}
}

func TestIMG9_InvalidPolicies(t *testing.T) {
	tests := map[string]pullmanager.Config{
		"unknown policy":    {Dir: "/x", Policy: "Sometimes"},
		"relative dir":      {Dir: "x"},
		"list without use":  {Dir: "/x", Allowlist: []string{"app"}},
		"tag":               {Dir: "/x", Policy: pullmanager.NeverVerifyAllowlistedImages, Allowlist: []string{"app:1"}},
		"star in the host":  {Dir: "/x", Policy: pullmanager.NeverVerifyAllowlistedImages, Allowlist: []string{"*.io/app"}},
		"star alone":        {Dir: "/x", Policy: pullmanager.NeverVerifyAllowlistedImages, Allowlist: []string{"*"}},
		"no host":           {Dir: "/x", Policy: pullmanager.NeverVerifyAllowlistedImages, Allowlist: []string{"/*"}},
		"space":             {Dir: "/x", Policy: pullmanager.NeverVerifyAllowlistedImages, Allowlist: []string{" app"}},
		"empty":             {Dir: "/x", Policy: pullmanager.NeverVerifyAllowlistedImages, Allowlist: []string{""}},
		"star in a segment": {Dir: "/x", Policy: pullmanager.NeverVerifyAllowlistedImages, Allowlist: []string{"reg.io/te*"}},
	}
	for name, config := range tests {
		if _, err := pullmanager.New(config); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

func list(t *testing.T, dir, kind string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, kind))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
