package packaging_test

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldnode/herald/packaging"
)

const repository = ".."

func TestLatestVersion(t *testing.T) {
	tests := map[string]struct{ changelog, want string }{
		"unreleased changes above": {"# Changelog\n\n## Unreleased\n\n- x\n\n## v0.2.0\n\n- y\n\n## v0.1.0\n", "0.2.0"},
		"release candidate":        {"## v1.0.0-rc.1\n", "1.0.0-rc.1"},
		"other headlines":          {"## v1\n\n### v9.9.9\n\n## v0.1.0\n", "0.1.0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := packaging.LatestVersion(test.changelog); err != nil || got != test.want {
				t.Errorf("got %q (%v), want %q", got, err, test.want)
			}
		})
	}
	if got, err := packaging.LatestVersion("## Unreleased\n"); err == nil {
		t.Errorf("got %q of a changelog without a release", got)
	}
}

func TestReadRelease(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	release, err := packaging.ReadRelease(t.Context(), repository)
	if err != nil || release.Version == "" || release.Time.Unix() != 1700000000 {
		t.Errorf("got %+v (%v)", release, err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if release, err := packaging.ReadRelease(t.Context(), repository); err == nil {
		t.Errorf("got %+v with an invalid SOURCE_DATE_EPOCH", release)
	}
}

var testRelease = packaging.Release{Version: "1.2.3", Commit: "c0ffee", Time: time.Unix(1700000000, 0).UTC(), Arch: "amd64"}

// stage returns what the packages of testRelease are made of, in a new directory. The program is a short text.
func stage(t *testing.T) packaging.Input {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "man"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"herald": "program", "herald.bash": "bash", "_herald": "zsh", "herald.fish": "fish",
		"man/herald.1": ".TH HERALD 1\n", "man/kubectl-herald.1": ".so man1/herald.1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	modules := []packaging.Module{{Path: "example.com/herald"}, {Path: "stdlib", Version: "1.26.0"}}
	return packaging.Input{Repository: repository, Stage: dir, Modules: modules}
}

func build(t *testing.T) map[string][]byte {
	t.Helper()
	output := t.TempDir()
	if err := packaging.Package(testRelease, stage(t), output); err != nil {
		t.Fatal(err)
	}
	return readFiles(t, output)
}

func readFiles(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	contents := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			contents[path], err = os.ReadFile(filepath.Join(dir, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return contents
}

// Packages do not depend on the directory, the time and the owner of files.
func TestPackage_Reproducible(t *testing.T) {
	first, second := build(t), build(t)
	want := []string{"SHA256SUMS", "herald-1.2.3-amd64.spdx.json", "herald-1.2.3.x86_64.rpm", "herald_1.2.3_amd64.deb"}
	if got := slices.Sorted(maps.Keys(first)); !slices.Equal(got, want) {
		t.Fatalf("got files %q, want %q", got, want)
	}
	for name, content := range first {
		if !bytes.Equal(content, second[name]) {
			t.Errorf("%s differs in two builds", name)
		}
	}
	for _, name := range want[1:] {
		if !strings.Contains(string(first["SHA256SUMS"]), "  "+name+"\n") {
			t.Errorf("SHA256SUMS does not have %s: %s", name, first["SHA256SUMS"])
		}
	}
}

func TestPackage_UnknownArchitecture(t *testing.T) {
	release := testRelease
	release.Arch = "mips"
	if err := packaging.Package(release, packaging.Input{}, t.TempDir()); err == nil || !strings.Contains(err.Error(), "mips") {
		t.Errorf("got %v, want an error about mips", err)
	}
}
