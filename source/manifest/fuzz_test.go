package manifest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/source/manifest"
)

// FuzzDecode finds inputs that panic or hang, or whose UID changes when they are converted to JSON.
func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"testdata/valid/*", "testdata/invalid/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			for part := range strings.SplitSeq(string(text), "\n\n## ") {
				addSeeds(f, part)
			}
		}
	}
	for _, text := range append(scalars, billionLaughs(3), web+container, "a: &a [*a]", "{}{}", "\ufeff---\n...\n%YAML 1.1\n") {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pods, err := manifest.Decode(data, fromFile)
		if err != nil {
			checkErrors(t, err)
			return
		}
		for _, pod := range pods {
			if !strings.HasSuffix(pod.Name, "-node-1") || pod.Namespace == "" || pod.UID == "" || pod.Spec.NodeName != "node-1" {
				t.Fatalf("got %+v, want a static pod of this node", pod.ObjectMeta)
			}
			manifest.Warnings(pod)
		}
		if text, err := yaml.YAMLToJSON(data); err == nil && len(pods) == 1 && !bytes.Contains(data, []byte("---")) {
			again, err := manifest.Decode(text, fromFile)
			if err != nil || again[0].UID != pods[0].UID {
				t.Fatalf("JSON: got error %v or another UID, want the same pod:\n%s", err, text)
			}
		}
	})
}

// addSeeds adds a manifest and typical corruptions of it.
func addSeeds(f *testing.F, text string) {
	f.Helper()
	if _, after, found := strings.Cut(text, "metadata:"); found && !strings.Contains(text, "apiVersion") {
		text, _, _ = strings.Cut("apiVersion: v1\nkind: Pod\nmetadata:"+after, "=> ")
	}
	f.Add([]byte(text))
	f.Add([]byte(text[:len(text)/2]))
	f.Add([]byte(strings.ReplaceAll(text, ": ", ":")))
	f.Add([]byte(strings.ReplaceAll(text, "- ", "-")))
	f.Add([]byte(strings.ReplaceAll(text, "  ", "\t")))
	f.Add([]byte(text + "\n---\n" + text))
	if converted, err := yaml.YAMLToJSON([]byte(text)); err == nil && json.Valid(converted) {
		f.Add(converted)
	}
}

func checkErrors(t *testing.T, err error) {
	t.Helper()
	var all manifest.Errors
	if !errors.As(err, &all) || len(all) == 0 || len(all) > 21 {
		t.Fatalf("got %d errors in a %T, want 1 to 21 Errors", len(all), err)
	}
	for _, one := range all {
		if one.Err == nil || one.Location != "x.yaml" || len(one.Error()) > 5000 || strings.Contains(one.Error(), "\n") {
			t.Fatalf("got error %q, want one line with cause and location", one)
		}
	}
}
