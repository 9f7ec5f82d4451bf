// Package host reads which cgroup version the machine has and what its controllers can limit.
package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/cgroup"
)

// Mount is where cgroup hierarchies are mounted: version 2 itself, or one directory for each controller of version 1.
const Mount = "/sys/fs/cgroup"

// Paths are the files that Read reads. Tests use their own.
type Paths struct {
	Mount     string // defaults to Mount
	HugePages string // defaults to /sys/kernel/mm/hugepages
	Self      string // the agent's own cgroups. Defaults to /proc/self/cgroup
}

// Read returns what the machine offers.
func Read(paths Paths) (cgroup.Host, error) {
	mount := cmp.Or(paths.Mount, Mount)
	sizes, sizesErr := hugePageSizes(cmp.Or(paths.HugePages, "/sys/kernel/mm/hugepages"))
	isV2, v2Err := IsV2(mount)
	swap := filepath.Join(mount, "memory", "memory.memsw.limit_in_bytes")
	var selfErr error
	if isV2 { // the root of version 2 has no limits
		var own string
		own, selfErr = ownCgroup(cmp.Or(paths.Self, "/proc/self/cgroup"))
		swap = filepath.Join(mount, own, "memory.swap.max")
	}
	_, swapErr := os.Stat(swap)
	result := cgroup.Host{V2: isV2, SwapController: swapErr == nil && selfErr == nil, HugePageSizes: sizes}
	if err := errors.Join(sizesErr, v2Err, selfErr); err != nil {
		return result, fmt.Errorf("read cgroup capabilities of the machine: %w", err)
	}
	return result, nil
}

// IsV2 reports whether the mount is the unified hierarchy of version 2.
func IsV2(mount string) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(mount, &stat); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, &fs.PathError{Op: "statfs", Path: mount, Err: err}
	}
	return stat.Type == unix.CGROUP2_SUPER_MAGIC, nil
}

// ownCgroup returns the path of the line 0::PATH, which version 2 has.
func ownCgroup(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(content)) {
		if path, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: no line of cgroup version 2", file)
}

// hugePageSizes returns the page sizes in bytes, which are the names of directories such as hugepages-2048kB.
func hugePageSizes(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the kernel has no huge pages
	}
	var sizes []int64
	for _, entry := range entries {
		text, hasPrefix := strings.CutPrefix(entry.Name(), "hugepages-")
		text, hasSuffix := strings.CutSuffix(text, "kB")
		if size, err := strconv.ParseInt(text, 10, 64); err == nil && hasPrefix && hasSuffix {
			sizes = append(sizes, size<<10)
		}
	}
	slices.Sort(sizes)
	return sizes, err
}
