package poddir_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/heraldnode/herald/internal/poddir"
	"github.com/heraldnode/herald/podid"
)

func TestRoots_Of(t *testing.T) {
	roots := poddir.Roots{Root: t.TempDir(), Former: t.TempDir()}
	for _, dir := range []string{roots.Root + "/both", roots.Former + "/both", roots.Former + "/old", roots.Root + "/new"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for uid, want := range map[podid.UID]string{
		"both": roots.Root, "new": roots.Root, "old": roots.Former, "unknown": roots.Root,
	} {
		if got := roots.Of(uid); got != filepath.Join(want, string(uid)) {
			t.Errorf("%s: got %s, want it in %s", uid, got, want)
		}
		if got := (poddir.Roots{Root: roots.Root}).Of(uid); got != filepath.Join(roots.Root, string(uid)) {
			t.Errorf("%s without a former root: got %s", uid, got)
		}
	}
}
