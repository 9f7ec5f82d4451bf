package host_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heraldnode/herald/cgroup/host"
)

// A directory that is not a cgroup mount looks like version 1.
func TestRead_Version1(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"huge/hugepages-1048576kB", "huge/hugepages-2048kB", "huge/other", "cgroup/memory"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	paths := host.Paths{Mount: filepath.Join(dir, "cgroup"), HugePages: filepath.Join(dir, "huge")}
	got, err := host.Read(paths)
	if err != nil || got.V2 || got.SwapController || !slices.Equal(got.HugePageSizes, []int64{2 << 20, 1 << 30}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup/memory/memory.memsw.limit_in_bytes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := host.Read(paths); err != nil || !got.SwapController {
		t.Errorf("with swap accounting: got %+v, %v", got, err)
	}
}

func TestRead_NoCgroups(t *testing.T) {
	dir := t.TempDir()
	got, err := host.Read(host.Paths{Mount: filepath.Join(dir, "none"), HugePages: filepath.Join(dir, "none")})
	if err != nil || got.V2 || got.SwapController || len(got.HugePageSizes) > 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// The machine of the test has a version, whichever it is.
func TestRead_Machine(t *testing.T) {
	if _, err := host.Read(host.Paths{}); err != nil {
		t.Error(err)
	}
}
