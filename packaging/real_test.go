//go:build packages

package packaging_test

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/heraldnode/herald/packaging"
)

var (
	output = flag.String("output", "", "directory for the packages of the next two versions, for hack/systemd")
	update = flag.Bool("update", false, "rewrite testdata")
)

// The real program, built from two copies of the repository at different paths, once with an empty build cache, gives the same bytes.
func TestBuild_Reproducible(t *testing.T) {
	release := readRelease(t)
	first, second := t.TempDir(), t.TempDir()
	buildFrom(t, release, copyRepository(t, "a"), first)
	cache := t.TempDir()
	t.Setenv("GOCACHE", cache)
	buildFrom(t, release, copyRepository(t, "a/much/longer/path"), second)
	contents := readFiles(t, second)
	for name, content := range readFiles(t, first) {
		if !bytes.Equal(content, contents[name]) {
			t.Errorf("%s differs", name)
		}
	}
	if len(contents) != 4 {
		t.Errorf("got %d files, want 4", len(contents))
	}
}

func TestBuild_Contents(t *testing.T) {
	release := readRelease(t)
	dir := *output
	if dir == "" {
		dir = t.TempDir()
	} else if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	buildFrom(t, release, repository, dir)
	testDeb(t, filepath.Join(dir, "herald_"+release.Version+"_amd64.deb"))
	t.Run("rpm", func(t *testing.T) {
		testRPM(t, filepath.Join(dir, "herald-"+release.Version+".x86_64.rpm"), release.Version)
	})
	testSBOM(t, filepath.Join(dir, "herald-"+release.Version+"-amd64.spdx.json"))
	shell(t, dir, "sha256sum --check --strict SHA256SUMS")

	next := release // for the upgrade
	var major, minor, patch int
	if _, err := fmt.Sscanf(release.Version, "%d.%d.%d", &major, &minor, &patch); err != nil {
		t.Fatal(err)
	}
	next.Version = fmt.Sprintf("%d.%d.%d", major, minor, patch+1)
	buildFrom(t, next, repository, dir)
}

func readRelease(t *testing.T) packaging.Release {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the recorded lists are those of amd64")
	}
	release, err := packaging.ReadRelease(t.Context(), repository)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

func buildFrom(t *testing.T, release packaging.Release, repository, output string) {
	t.Helper()
	if err := packaging.Build(t.Context(), release, repository, output); err != nil {
		t.Fatal(err)
	}
}

// copyRepository copies the files that git knows, as they are now.
func copyRepository(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	shell(t, repository, "git ls-files -z | tar --create --null --files-from=- | tar --extract --touch --directory="+dir)
	return dir
}

// shell runs a line in a directory and returns its output.
func shell(t *testing.T, dir, line string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", line)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("$ %s: %v\n%s%s", line, err, out, stderr.String())
	}
	return string(out)
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// manualPages are as many as there are commands; the lists have only the first.
var manualPages = regexp.MustCompile(`(?m)^.*/man1/herald-.*\n`)

func testDeb(t *testing.T, path string) {
	t.Helper()
	list := shell(t, ".", `dpkg-deb --contents "`+path+`" | awk '{print $1, $2, $6, $7, $8}' | sed 's/ *$//'`)
	golden(t, "deb.txt", manualPages.ReplaceAllString(list, "")+shell(t, ".", `dpkg-deb --info "`+path+`" conffiles`))
	root := t.TempDir()
	shell(t, ".", `dpkg-deb --extract "`+path+`" "`+root+`"`)
	if out := shell(t, root, "usr/bin/herald config show --config etc/herald/config.yaml"); !strings.Contains(out, "/etc/herald/manifests") {
		t.Errorf("got configuration %s", out)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		shell(t, ".", `dpkg-deb --info "`+path+`" `+script+` | sh -n`)
	}
	shell(t, root, "bash -n usr/share/bash-completion/completions/herald; test -x usr/bin/kubectl_complete-herald")
	shell(t, root, "usr/bin/kubectl-herald version")
	testManualPages(t, filepath.Join(root, "usr/share/man/man1"))
}

// testManualPages formats the pages, with all warnings of the formatter.
func testManualPages(t *testing.T, dir string) {
	t.Helper()
	pages, err := filepath.Glob(dir + "/*.1.gz")
	if err != nil || len(pages) < 30 {
		t.Fatalf("got pages %q (%v)", pages, err)
	}
	for _, page := range pages {
		text := unzip(t, page)
		if strings.HasPrefix(text, ".so ") { // another name of a page
			continue
		}
		cmd := exec.CommandContext(t.Context(), "groff", "-man", "-ww", "-Tutf8")
		cmd.Stdin = strings.NewReader(text)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || stderr.Len() > 0 || !strings.Contains(string(out), "herald") {
			t.Errorf("%s: %v: %s", filepath.Base(page), err, stderr.String())
		}
	}
}

func unzip(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// testRPM asks the real rpm, and installs the package in an empty root without its scripts, which need a system.
func testRPM(t *testing.T, path, version string) {
	t.Helper()
	t.Setenv("HOME", t.TempDir()) // Debian's rpm has its database there
	query := `'[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES} %{FILEFLAGS:fflags}\n]'`
	list := shell(t, ".", `rpm --query --package --queryformat `+query+` "`+path+`" | sed 's/ *$//'`)
	golden(t, "rpm.txt", manualPages.ReplaceAllString(list, ""))
	name := shell(t, ".", `rpm --query --package "`+path+`"`)
	if want := fmt.Sprintf("herald-%s-1.x86_64\n", version); name != want {
		t.Errorf("got %s, want %s", name, want)
	}
	shell(t, ".", `rpm --checksig --nosignature "`+path+`"`)
	root := t.TempDir()
	shell(t, ".", `rpm --root "`+root+`" --install --nodeps --noscripts --ignoreos "`+path+`"`)
	shell(t, ".", `rpm --root "`+root+`" --verify --nodeps --noscripts --nouser --nogroup herald`)
	shell(t, root, `usr/bin/herald version`)
	extracted := t.TempDir()
	// The archive has absolute paths, which must not be those of this machine. rpm2cpio fails after it has written everything: the header
	// counts another size.
	shell(t, extracted, `(rpm2cpio "`+absolute(t, path)+`" || true) | cpio --extract --make-directories --no-absolute-filenames --quiet`)
	shell(t, extracted, `cmp usr/bin/herald "`+root+`/usr/bin/herald"`)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// testSBOM compares the list with what Go says about the binary's modules.
func testSBOM(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, pkg := range readSPDX(t, text).Packages {
		got = append(got, pkg.PackageName)
		if pkg.PackageLicenseDeclared == "NOASSERTION" {
			t.Errorf("the licence of %s is not recognized", pkg.PackageName)
		}
	}
	const format = "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}"
	list := shell(t, repository, `CGO_ENABLED=0 go list -deps -f '`+format+`' ./cmd/herald | sort -u`)
	want := append([]string{"herald", "stdlib"}, strings.Fields(list)...)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got modules\n%s\nwant\n%s", got, want)
	}
}
