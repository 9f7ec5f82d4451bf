package manifest_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/source/manifest"
)

var update = flag.Bool("update", false, "rewrite testdata/golden")

// TestGoldenManifests pins what becomes of whole manifests: every default, and above all every UID.
func TestGoldenManifests(t *testing.T) {
	manifests, err := filepath.Glob("testdata/good/*")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("%d manifests, %v", len(manifests), err)
	}
	for _, path := range manifests {
		base := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		t.Run(base, func(t *testing.T) {
			golden := filepath.Join("testdata", "golden", base+".yaml")
			got := render(t, path)
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

func render(t *testing.T, path string) (text []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	origin := fromFile
	origin.Location = path
	pods, err := manifest.Decode(data, origin)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		one, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, "---\n"...), one...)
	}
	return text
}
