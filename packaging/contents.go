package packaging

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/goreleaser/nfpm/v2/files"
)

// Input is what a package is made of.
type Input struct {
	Repository string
	Stage      string // has herald, herald.bash, _herald, herald.fish and man/*.1, and receives compressed files
	Modules    []Module
}

// binary returns the path of the program.
func (i Input) binary() string { return filepath.Join(i.Stage, "herald") }

// Formats of packages.
const (
	formatDeb = "deb"
	formatRPM = "rpm"
)

// directories belong to the packages, which remove them if they are empty.
var directories = []string{
	"/etc/herald", "/etc/herald/manifests", "/etc/herald/alerts.d", "/usr/share/herald", "/usr/share/herald/rules",
	"/usr/share/doc/herald", "/usr/share/doc/herald/examples", "/usr/share/doc/herald/examples/alerts",
}

// contents lists the files of the packages. Compressed files and the list of modules are written to the stage first.
func contents(release Release, in Input) (files.Contents, error) {
	if err := prepare(release, in); err != nil {
		return nil, err
	}
	repository := func(path string) string { return filepath.Join(in.Repository, filepath.FromSlash(path)) }
	stage := func(path string) string { return filepath.Join(in.Stage, path) }
	list := files.Contents{
		program(stage("herald"), "/usr/bin/herald"),
		program(repository("packaging/kubectl_complete-herald"), "/usr/bin/kubectl_complete-herald"),
		{Source: "herald", Destination: "/usr/bin/kubectl-herald", Type: files.TypeSymlink},

		regular(repository("packaging/herald.service"), "/usr/lib/systemd/system/herald.service"),
		regular(repository("packaging/sysusers.conf"), "/usr/lib/sysusers.d/herald.conf"),
		regular(repository("packaging/process.conf"), "/usr/share/herald/process.conf"),
		regular(repository("alert/rule/default.yaml"), "/usr/share/herald/rules/default.yaml"),

		{Source: repository("packaging/config.yaml"), Destination: "/etc/herald/config.yaml", Type: files.TypeConfigNoReplace},
		{Source: repository("packaging/default.env"), Destination: "/etc/default/herald", Type: files.TypeConfigNoReplace},

		regular(stage("herald.bash"), "/usr/share/bash-completion/completions/herald"),
		regular(stage("herald.fish"), "/usr/share/fish/vendor_completions.d/herald.fish"),
		only(formatDeb, regular(stage("_herald"), "/usr/share/zsh/vendor-completions/_herald")),
		only(formatRPM, regular(stage("_herald"), "/usr/share/zsh/site-functions/_herald")),

		regular(repository("LICENSE"), "/usr/share/doc/herald/copyright"),
		regular(stage("third-party-licenses.gz"), "/usr/share/doc/herald/third-party-licenses.gz"),
		regular(stage("changelog.gz"), "/usr/share/doc/herald/changelog.gz"),
		regular(stage("herald.spdx.json"), "/usr/share/doc/herald/herald.spdx.json"),
		regular(repository("examples/web.yaml"), "/usr/share/doc/herald/examples/web.yaml"),
		regular(repository("deploy/alerts/shop.yaml"), "/usr/share/doc/herald/examples/alerts/shop.yaml"),
		regular(repository("deploy/alerts/shop_test.yaml"), "/usr/share/doc/herald/examples/alerts/shop_test.yaml"),
	}
	pages, err := filepath.Glob(stage("man/*.1.gz"))
	if err != nil || len(pages) == 0 {
		return nil, fmt.Errorf("no manual pages in %s (%w)", in.Stage, err)
	}
	for _, page := range pages {
		list = append(list, regular(page, "/usr/share/man/man1/"+filepath.Base(page)))
	}
	for _, dir := range directories {
		list = append(list, &files.Content{Destination: dir, Type: files.TypeDir})
	}
	for _, content := range list {
		setOwner(content, release)
	}
	return list, nil
}

func regular(source, destination string) *files.Content {
	return &files.Content{Source: source, Destination: destination, Type: files.TypeFile}
}

func program(source, destination string) *files.Content {
	return &files.Content{Source: source, Destination: destination, Type: files.TypeFile, FileInfo: &files.ContentFileInfo{Mode: 0o755}}
}

func only(format string, content *files.Content) *files.Content {
	content.Packager = format
	return content
}

// setOwner sets what would otherwise be that of the file on this machine.
func setOwner(content *files.Content, release Release) {
	if content.FileInfo == nil {
		content.FileInfo = &files.ContentFileInfo{Mode: 0o644}
	}
	switch content.Type {
	case files.TypeDir:
		content.FileInfo.Mode = 0o755
	case files.TypeSymlink:
		content.FileInfo.Mode = 0o777
	}
	content.FileInfo.Owner, content.FileInfo.Group, content.FileInfo.MTime = "root", "root", release.Time
}

// prepare writes the files to the stage that are neither in the repository nor written by the program.
func prepare(release Release, in Input) error {
	changelog, err := os.ReadFile(filepath.Join(in.Repository, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	sbom, err := SBOM(release, in.binary(), in.Modules)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(in.Stage, "herald.spdx.json"), sbom, 0o600); err != nil {
		return err
	}
	compressed := map[string][]byte{"changelog.gz": changelog, "third-party-licenses.gz": notices(in.Modules)}
	pages, err := filepath.Glob(filepath.Join(in.Stage, "man", "*.1"))
	if err != nil {
		return err
	}
	for _, page := range slices.Sorted(slices.Values(pages)) {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		compressed[filepath.Join("man", filepath.Base(page)+".gz")] = text
	}
	for name, content := range compressed {
		if err := writeCompressed(filepath.Join(in.Stage, name), content); err != nil {
			return err
		}
	}
	return nil
}

// writeCompressed writes a gzip file without a name and a time.
func writeCompressed(path string, content []byte) error {
	var buffer bytes.Buffer
	writer, err := gzip.NewWriterLevel(&buffer, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := writer.Write(content); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, buffer.Bytes(), 0o600)
}
