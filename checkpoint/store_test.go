package checkpoint_test

import (
	"errors"
	"io/fs"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/checkpoint"
)

type allocations struct {
	CPU map[string]string `json:"cpu"`
}

func newStore[T any](t *testing.T, dir *checkpoint.Dir, version int) *checkpoint.Store[T] {
	t.Helper()
	store, err := checkpoint.NewStore[T](dir, "allocation", version)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestAStoreKeepsAValue(t *testing.T) {
	store := newStore[allocations](t, open(t, t.TempDir()), 1)
	if _, err := store.Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("before the first save: %v", err)
	}
	want := allocations{CPU: map[string]string{"a": "1", "b": "500m"}}
	if err := store.Save(want); err != nil {
		t.Fatal(err)
	}
	have, err := store.Load()
	if diff := cmp.Diff(want, have); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
}

func TestF18AStoreSetsAsideWhatItDoesNotUnderstand(t *testing.T) {
	tests := map[string]struct {
		version int
		payload string
		reason  error
	}{
		"a newer version": {version: 3, payload: `{}`, reason: checkpoint.ErrVersion},
		"an older one":    {version: 1, payload: `{}`, reason: checkpoint.ErrVersion},
		"another shape":   {version: 2, payload: `{"cpu":{"a":"1","b":2}}`, reason: checkpoint.ErrCorrupt},
		"no JSON":         {version: 2, payload: `{"cpu":`, reason: checkpoint.ErrCorrupt},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			dir := open(t, path)
			if err := dir.Save("allocation", test.version, []byte(test.payload)); err != nil {
				t.Fatal(err)
			}
			have, err := newStore[allocations](t, dir, 2).Load()
			var bad *checkpoint.InvalidFileError
			if !errors.As(err, &bad) || !errors.Is(err, test.reason) || have.CPU != nil {
				t.Fatalf("loaded %v: %v", have, err)
			}
			wantFiles(t, path, "allocation.corrupt")
		})
	}
}

func TestAStoreReadsWhatHasFieldsThatItDoesNotKnow(t *testing.T) {
	dir := open(t, t.TempDir())
	save(t, dir, "allocation", `{"cpu":{"a":"1"},"later":true}`)
	have, err := newStore[allocations](t, dir, 1).Load()
	if err != nil || have.CPU["a"] != "1" {
		t.Fatalf("loaded %v: %v", have, err)
	}
}

func TestAValueWithoutJSONIsNotSaved(t *testing.T) {
	dir := open(t, t.TempDir())
	store := newStore[float64](t, dir, 1)
	if err := store.Save(math.Inf(1)); err == nil || !strings.Contains(err.Error(), "allocation") {
		t.Fatalf("have %v", err)
	}
	if _, err := checkpoint.NewStore[int](dir, "allocation", 0); !errors.Is(err, checkpoint.ErrInvalidVersion) {
		t.Fatalf("have %v", err)
	}
}
