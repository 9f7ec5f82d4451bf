package packaging

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/rpm"
)

const description = `Runs the pods of one machine and reports their status
Herald is a node agent that follows the rules of the kubelet. It runs pods
from a directory of manifests, a URL or an API server in containerd, CRI-O
or as host processes, and does not need a cluster. Its commands show pods,
logs, history, load and alerts at the node itself, also as a plugin of
kubectl.`

// rpmArch are the names of architectures in RPM packages.
var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// Package writes the packages, the list of modules and SHA256SUMS to the directory output. It depends on nothing but its arguments.
func Package(release Release, in Input, output string) error {
	if rpmArch[release.Arch] == "" {
		return fmt.Errorf("architecture %s is not supported", release.Arch)
	}
	packages, err := buildPackages(release, in)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(output, 0o755); err != nil {
		return err
	}
	var names []string
	for name := range packages {
		names = append(names, name)
	}
	slices.Sort(names)
	var sums strings.Builder
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(output, name), packages[name], 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(packages[name]), name)
	}
	return os.WriteFile(filepath.Join(output, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// buildPackages returns the files of a release by name.
func buildPackages(release Release, in Input) (map[string][]byte, error) {
	packages := map[string][]byte{}
	for format, packager := range map[string]nfpm.Packager{formatDeb: deb.Default, formatRPM: rpm.DefaultRPM} {
		info, err := newInfo(release, in, format)
		if err != nil {
			return nil, err
		}
		var buffer bytes.Buffer
		if err := packager.Package(info, &buffer); err != nil {
			return nil, fmt.Errorf("%s: %w", format, err)
		}
		packages[fileName(release, format)] = buffer.Bytes()
	}
	sbom, err := os.ReadFile(filepath.Join(in.Stage, "herald.spdx.json"))
	if err != nil {
		return nil, err
	}
	packages[fmt.Sprintf("herald-%s-%s.spdx.json", release.Version, release.Arch)] = sbom
	return packages, nil
}

func fileName(release Release, format string) string {
	if format == formatRPM {
		return fmt.Sprintf("herald-%s.%s.rpm", release.Version, rpmArch[release.Arch])
	}
	return fmt.Sprintf("herald_%s_%s.deb", release.Version, release.Arch)
}

func newInfo(release Release, in Input, format string) (*nfpm.Info, error) {
	list, err := contents(release, in)
	if err != nil {
		return nil, err
	}
	script := func(name string) string { return filepath.Join(in.Repository, "packaging", "scripts", name) }
	info := &nfpm.Info{
		Name: "herald", Arch: release.Arch, Platform: "linux", Version: release.Version, Release: "1", Section: "admin", Priority: "optional",
		Maintainer: "The Herald authors <heraldnode@users.noreply.github.com>", Description: description, Vendor: "Herald",
		Homepage: "https://github.com/heraldnode/herald", License: "Apache-2.0", MTime: release.Time, DisableGlobbing: true,
	}
	info.Contents = list
	switch format {
	case formatDeb:
		info.Release = ""
		info.Recommends = []string{"containerd | containerd.io | cri-o", "systemd"}
		info.Suggests = []string{"bash-completion"}
		info.Scripts = nfpm.Scripts{PostInstall: script("deb-postinst"), PreRemove: script("deb-prerm"), PostRemove: script("deb-postrm")}
	case formatRPM:
		info.Recommends = []string{"containerd", "systemd"}
		info.Suggests = []string{"bash-completion"}
		info.RPM.BuildHost, info.RPM.Summary = "localhost", strings.SplitN(description, "\n", 2)[0]
		info.Scripts = nfpm.Scripts{PostInstall: script("rpm-post"), PreRemove: script("rpm-preun"), PostRemove: script("rpm-postun")}
	}
	return nfpm.WithDefaults(info), nil
}
