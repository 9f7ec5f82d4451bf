// Command packages builds the packages of the latest release in CHANGELOG.md.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/heraldnode/herald/packaging"
)

func main() {
	repository := flag.String("repository", "..", "directory of the repository")
	output := flag.String("output", "../.build/packages", "directory to write to")
	version := flag.String("version", "", "version like 0.1.1, instead of that of CHANGELOG.md")
	arch := flag.String("arch", "", "amd64 or arm64, instead of this machine's")
	flag.Parse()
	if err := run(context.Background(), *repository, *output, *version, *arch); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, repository, output, version, arch string) error {
	release, err := packaging.ReadRelease(ctx, repository)
	if err != nil {
		return err
	}
	release.Version, release.Arch = cmp.Or(version, release.Version), cmp.Or(arch, release.Arch)
	if err := packaging.Build(ctx, release, repository, output); err != nil {
		return err
	}
	sums, err := os.ReadFile(output + "/SHA256SUMS")
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(sums)
	return err
}
