package source_test

import (
	"strings"
	"testing"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

func TestRealManifestsBecomeStaticPodsAndTheirMistakesAreLocated(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir+"/web.yaml",
		realManifest("web", "registry.example/web:1")+"---\n"+realManifest("db", "registry.example/db:1"))
	f := newFile(t, dir, func(c *source.FileConfig) { c.Decode = nil })
	first := f.Scan()
	if len(first.Pods) != 2 || len(first.Problems) > 0 {
		t.Fatalf("pods %q, problems %v", names(first.Pods), first.Problems)
	}
	if p := first.Pods[0]; p.Name != "web-n1" || p.Spec.NodeName != node || p.UID == "" || podid.HashOf(p) == "" {
		t.Fatalf("not a static pod of this node: %+v", p.ObjectMeta)
	}

	rename(t, path, dir+"/renamed.yaml")
	if renamed := f.Scan(); names(renamed.Pods) != names(first.Pods) {
		t.Fatal("a new name of the file is a new pod")
	}

	broken := strings.Replace(realManifest("web", "registry.example/web:2"), "image:", "imagee:", 1)
	write(t, dir+"/renamed.yaml", broken)
	listing := f.Scan()
	if names(listing.Pods) != names(first.Pods) {
		t.Fatal("a typing error removed the pods")
	}
	found := false
	for _, p := range listing.Problems {
		found = found || p.Location == dir+"/renamed.yaml" && p.Line == 11 && strings.Contains(p.Field+p.Message, "imagee")
		if strings.Contains(p.Message, dir) {
			t.Errorf("the message repeats the location: %q", p.Message)
		}
	}
	if !found {
		t.Fatalf("no problem tells file, line and field: %q", texts(listing.Problems))
	}

	write(t, dir+"/renamed.yaml", "# nothing but a comment\n")
	if commented := f.Scan(); names(commented.Pods) != names(first.Pods) || len(commented.Problems) != 1 {
		t.Fatalf("pods %q, problems %v", names(commented.Pods), commented.Problems)
	}
	write(t, dir+"/renamed.yaml", "apiVersion: v1\nkind: PodList\nitems: []\n")
	if none := f.Scan(); len(none.Pods) > 0 || len(none.Problems) > 0 {
		t.Fatalf("pods %q, problems %v", names(none.Pods), none.Problems)
	}
}

func TestCFG27AndCFG29ARealListOverHTTPAndTheExplicitEndOfIt(t *testing.T) {
	item := func(name string) string {
		return "- metadata: {name: " + name + "}\n  spec: {containers: [{name: c, image: registry.example/x:1}]}\n"
	}
	const head = "apiVersion: v1\nkind: PodList\nitems:"
	site := newSite(t, plain, body(head+"\n"+item("web")+item("db")))
	sink := start(t, newHTTP(t, site.URL, func(c *source.HTTPConfig) { c.Decode = nil }))
	sink.wait(t, "two pods", func() bool { return len(sink.pods) == 2 })
	site.set(body(""))
	sink.waitProblem(t, "items: []")
	site.set(body(head + "\n" + item("web") + "- {}\n")) // one bad item rejects the whole list
	sink.waitProblem(t, "name")
	if sets, _, _ := sink.told(); sets != 1 {
		t.Fatalf("%d sets", sets)
	}
	site.set(body(head + " []\n"))
	sink.waitPods(t, "")
}
