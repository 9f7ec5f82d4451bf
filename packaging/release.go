package packaging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Release is what is packaged. Everything that the packages contain follows from it and from the repository.
type Release struct {
	Version string    // 0.1.0
	Commit  string    // empty if it is unknown
	Time    time.Time // of all files
	Arch    string    // of Go: amd64, arm64
}

// headline finds the releases in CHANGELOG.md, newest first.
var headline = regexp.MustCompile(`(?m)^## v([0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.]+)?)$`)

// LatestVersion returns the version of the first release in a changelog.
func LatestVersion(changelog string) (string, error) {
	match := headline.FindStringSubmatch(changelog)
	if match == nil {
		return "", errors.New("CHANGELOG.md: no section like '## v1.2.3'")
	}
	return match[1], nil
}

// ReadRelease returns the latest release of a repository, for the architecture of this machine. SOURCE_DATE_EPOCH overrides the time,
// which is that of the commit.
func ReadRelease(ctx context.Context, repository string) (Release, error) {
	changelog, err := os.ReadFile(filepath.Join(repository, "CHANGELOG.md"))
	if err != nil {
		return Release{}, err
	}
	release := Release{Arch: runtime.GOARCH}
	if release.Version, err = LatestVersion(string(changelog)); err != nil {
		return Release{}, err
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if commit, time, err := lastCommit(ctx, repository); err == nil {
		release.Commit = commit
		if seconds == "" {
			seconds = time
		}
	}
	number, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return Release{}, fmt.Errorf("time of the release: SOURCE_DATE_EPOCH is %q and there is no commit", seconds)
	}
	release.Time = time.Unix(number, 0).UTC()
	return release, nil
}

func lastCommit(ctx context.Context, repository string) (commit, seconds string, err error) {
	out, err := exec.CommandContext(ctx, "git", "-C", repository, "log", "-1", "--format=%H %ct").Output()
	if err != nil {
		return "", "", err
	}
	commit, seconds, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	return commit, seconds, nil
}
