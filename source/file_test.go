package source_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/source/manifest"
)

// noPolling is a Period that leaves everything to notifications.
const noPolling = time.Hour

func newFile(tb testing.TB, path string, mutate ...func(*source.FileConfig)) *source.File {
	tb.Helper()
	config := source.FileConfig{Path: path, NodeName: node, Period: noPolling, Settle: 5 * time.Millisecond, Decode: decodeLines}
	for _, change := range mutate {
		change(&config)
	}
	f, err := source.NewFile(config)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func write(tb testing.TB, path, content string) string {
	tb.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		tb.Fatal(err)
	}
	return path
}

// backdate sets the modification time of a file to an hour ago.
func backdate(tb testing.TB, path string) string {
	tb.Helper()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		tb.Fatal(err)
	}
	return path
}

// replaceAtomically writes a temporary file and renames it, as deployment tools do.
func replaceAtomically(tb testing.TB, path, content string) {
	tb.Helper()
	write(tb, filepath.Dir(path)+"/.tmp", content)
	rename(tb, filepath.Dir(path)+"/.tmp", path)
}

func rename(tb testing.TB, from, to string) {
	tb.Helper()
	if err := os.Rename(from, to); err != nil {
		tb.Fatal(err)
	}
}

func remove(tb testing.TB, path string) {
	tb.Helper()
	if err := os.RemoveAll(path); err != nil {
		tb.Fatal(err)
	}
}

func mkdir(tb testing.TB, path string) {
	tb.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		tb.Fatal(err)
	}
}

func symlink(tb testing.TB, target, link string) {
	tb.Helper()
	if err := os.Symlink(target, link); err != nil {
		tb.Fatal(err)
	}
}

func TestCFG12_Directory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1\nsidecar 1")
	write(t, dir+"/b.json", "db 1")
	sink := startSource(t, newFile(t, dir+"//"))
	sink.waitPods(t, "db-1 sidecar-1 web-1")
	write(t, dir+"/c.yml", "log 1")
	sink.waitPods(t, "db-1 log-1 sidecar-1 web-1")
	write(t, dir+"/c.yml", "log 2")
	sink.waitPods(t, "db-1 log-2 sidecar-1 web-1")
	remove(t, dir+"/a.yaml")
	sink.waitPods(t, "db-1 log-2")
}

func TestCFG14_BUG32_FileNames(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"b.yaml.bak", "c.yaml~", "#d.yaml#", "e.yaml-bak", "f.yaml.swp", "g.yml.dpkg-dist", "h.yaml.rpmsave", "i.yaml.orig",
		"j.yaml.tmp", "README.md", "plain", ".hidden.yaml", "..data",
	} {
		write(t, dir+"/"+name, name+" 1")
	}
	mkdir(t, dir+"/sub")
	write(t, dir+"/sub/k.yaml", "sub 1")
	write(t, dir+"/A.YAML", "web 1")
	f := newFile(t, dir)
	sink := startSource(t, f)
	sink.waitPods(t, "web-1")
	sink.waitNoProblem(t)
	var want []source.IgnoredFile
	for _, file := range [][2]string{
		{"#d.yaml#", "backup"}, {".hidden.yaml", "hidden"}, {"README.md", "extension"}, {"b.yaml.bak", "backup"}, {"c.yaml~", "backup"},
		{"e.yaml-bak", "backup"}, {"f.yaml.swp", "backup"}, {"g.yml.dpkg-dist", "backup"}, {"h.yaml.rpmsave", "backup"},
		{"i.yaml.orig", "backup"}, {"j.yaml.tmp", "backup"}, {"plain", "extension"},
	} {
		want = append(want, source.IgnoredFile{Path: dir + "/" + file[0], Reason: file[1]})
	}
	if diff := cmp.Diff(want, f.Ignored()); diff != "" {
		t.Fatalf("ignored (-want +got):\n%s", diff)
	}
}

func TestBUG32_AnyExtension(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/etcd", "etcd 1")
	write(t, dir+"/etcd.bak", "etcd 0")
	write(t, dir+"/.etcd", "etcd 0")
	f := newFile(t, dir, func(c *source.FileConfig) { c.Extensions = []string{source.AnyExtension} })
	if got := uids(f.Scan().Pods); got != "etcd-1" {
		t.Fatalf("got pods %q, want etcd-1", got)
	}
}

func TestCFG15_BUG18_InvalidEdit(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1")
	write(t, dir+"/b.yaml", "db 1")
	sink := startSource(t, newFile(t, dir, func(c *source.FileConfig) { c.Period = 10 * time.Millisecond }))
	sink.waitPods(t, "db-1 web-1")
	for _, invalid := range []string{"web", "", "web 2\n!"} {
		write(t, dir+"/a.yaml", invalid)
		sink.waitProblem(t, dir+"/a.yaml")
		write(t, dir+"/b.yaml", "db 2")
		sink.waitPods(t, "db-2 web-1")
		write(t, dir+"/b.yaml", "db 1")
		sink.waitPods(t, "db-1 web-1")
	}
	sink.waitProblem(t, dir+"/a.yaml:2: metadata: want a name and a version")
	write(t, dir+"/a.yaml", "web 3")
	sink.waitPods(t, "db-1 web-3")
	sink.waitNoProblem(t)
	write(t, dir+"/a.yaml", "broken")
	sink.waitProblem(t, dir+"/a.yaml")
	remove(t, dir+"/a.yaml")
	sink.waitPods(t, "db-1")
	sink.waitNoProblem(t)
}

func TestCFG16_BUG19_RemovedPod(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1")
	sink := startSource(t, newFile(t, dir, func(c *source.FileConfig) { c.Period = 10 * time.Millisecond }))
	sink.waitPods(t, "web-1")
	remove(t, dir+"/a.yaml")
	sink.waitPods(t, "")
	write(t, dir+"/b.yaml", "db 1")
	sink.waitPods(t, "db-1")
	write(t, dir+"/b.yaml", "db 2")
	sink.waitPods(t, "db-2")
	if diff := cmp.Diff([]string{"web-1", "", "db-1", "db-2"}, sink.history); diff != "" {
		t.Fatalf("sets (-want +got):\n%s", diff)
	}
}

func TestCFG17_NeverValidFile(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir+"/pod", "broken")
	sink := startSource(t, newFile(t, path))
	sink.waitProblem(t, path+":1: metadata: want a name and a version")
	if sets, _, _ := sink.state(); sets != 0 {
		t.Fatal("got a set, want none")
	}
	write(t, path, "web 1")
	sink.waitPods(t, "web-1")
	write(t, path, "broken")
	sink.waitProblem(t, path)
	write(t, path, "none")
	sink.waitPods(t, "")
}

func TestCFG20_DuplicatePod(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/b.yaml", "web b1")
	sink := startSource(t, newFile(t, dir))
	sink.waitPods(t, "web-b1")
	write(t, dir+"/a.yaml", "web a1\nlog 1")
	sink.waitPods(t, "log-1 web-b1")
	sink.waitProblem(t, dir+"/a.yaml: metadata.name: skipped: pod web in namespace default is also defined in "+dir+
		"/b.yaml; remove one of them")
	write(t, dir+"/b.yaml", "web b2")
	sink.waitPods(t, "log-1 web-b2")
	rename(t, dir+"/b.yaml", dir+"/c.yaml") // the name goes to the first file
	sink.waitPods(t, "log-1 web-a1")
	remove(t, dir+"/a.yaml")
	sink.waitPods(t, "web-b2")
	sink.waitNoProblem(t)
}

func TestFile_DuplicatePodAtStart(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/b.yaml", "web b")
	write(t, dir+"/a.yaml", "web a")
	if got := uids(newFile(t, dir).Scan().Pods); got != "web-a" {
		t.Fatalf("got pods %q, want web-a", got)
	}
}

func TestCFG21_AtomicReplace(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1")
	sink := startSource(t, newFile(t, dir))
	sink.waitPods(t, "web-1")
	replaceAtomically(t, dir+"/a.yaml", "web 2")
	sink.waitPods(t, "web-2")
	if diff := cmp.Diff([]string{"web-1", "web-2"}, sink.history); diff != "" {
		t.Fatalf("sets (-want +got):\n%s", diff)
	}
}

func TestFile_DecodesChangedFilesOnly(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		write(t, dir+"/"+name+".yaml", name+" 1")
	}
	decoded := 0
	f := newFile(t, dir, func(c *source.FileConfig) {
		c.Decode = func(data []byte, origin manifest.Origin) ([]*v1.Pod, error) {
			decoded++
			return decodeLines(data, origin)
		}
	})
	first := f.Scan().Pods
	second := f.Scan().Pods
	if decoded != 3 || first[0] != second[0] {
		t.Fatalf("got %d decoded files, want 3 and the same pods", decoded)
	}
	write(t, dir+"/b.yaml", "b 2")
	if got := uids(f.Scan().Pods); decoded != 4 || got != "a-1 b-2 c-1" {
		t.Fatalf("got %d decoded files, pods %q; want 4, a-1 b-2 c-1", decoded, got)
	}
}

func TestFile_RapidRewrites(t *testing.T) {
	path := t.TempDir() + "/pod"
	f := newFile(t, path)
	for i := range 200 { // in place and of equal length; before Linux 6.13 most within one clock tick
		want := "web-" + string(rune('a'+i%26))
		write(t, path, "web "+string(rune('a'+i%26)))
		if got := uids(f.Scan().Pods); got != want {
			t.Fatalf("rewrite %d: got pods %q, want %q", i, got, want)
		}
	}
}

func TestFile_RenamedFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1")
	f := newFile(t, dir)
	f.Scan()
	rename(t, dir+"/a.yaml", dir+"/b.yaml")
	if got := f.Scan(); uids(got.Pods) != "web-1" || len(got.Problems) > 0 {
		t.Fatalf("got pods %q, problems %v; want web-1, none", uids(got.Pods), got.Problems)
	}
}

func TestFile_RenameDuringListing(t *testing.T) {
	dir := t.TempDir()
	from, to := write(t, dir+"/a.yaml", "web 1"), dir+"/b.yaml"
	for i := range 2000 { // other files, so that the kernel lists the directory in several steps
		write(t, fmt.Sprintf("%s/%04d", dir, i), "")
	}
	f := newFile(t, dir)
	f.Scan()
	for range 80 {
		var renamed sync.WaitGroup
		renamed.Go(func() { rename(t, from, to) })
		listing := f.Scan()
		renamed.Wait()
		if got := uids(listing.Pods); got != "web-1" {
			t.Fatalf("got pods %q, problems %v; want web-1, none", got, listing.Problems)
		}
		f.Scan()
		from, to = to, from
	}
}

func TestF20_FileBeingWritten(t *testing.T) {
	dir := t.TempDir()
	sink := startSource(t, newFile(t, dir, func(c *source.FileConfig) { c.Settle = 300 * time.Millisecond }))
	sink.waitPods(t, "")
	stop := writeContinuously(t, dir+"/a.yaml", "web half") // valid, but incomplete
	for range 2 {                                           // two scans
		sink.mu.Lock()
		scanned := sink.changed
		sink.mu.Unlock()
		<-scanned
	}
	stop()
	write(t, dir+"/a.yaml", "web whole")
	sink.waitPods(t, "web-whole")
	if diff := cmp.Diff([]string{"", "web-whole"}, sink.history); diff != "" {
		t.Fatalf("sets (-want +got):\n%s", diff)
	}
}

func TestFile_WrittenContinuously(t *testing.T) {
	dir := t.TempDir()
	sink := startSource(t, newFile(t, dir, func(c *source.FileConfig) {
		c.Settle, c.Period = 500*time.Millisecond, 100*time.Millisecond
	}))
	defer writeContinuously(t, dir+"/a.yaml", "web 1")()
	sink.waitPods(t, "web-1")
}

// writeContinuously writes the same bytes to the file over and over until stop is called.
func writeContinuously(t *testing.T, path, content string) (stop func()) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		defer file.Close()
		for ctx.Err() == nil {
			if _, err := file.WriteAt([]byte(content), 0); err != nil {
				t.Error(err)
				return
			}
		}
	})
	return func() {
		cancel()
		writing.Wait()
	}
}

func TestCFG18_ChangeAndRemoval(t *testing.T) {
	dir := t.TempDir()
	sink := startSource(t, newFile(t, dir))
	sink.waitPods(t, "")
	write(t, dir+"/a.yaml", "web 1")
	sink.waitPods(t, "web-1")
	write(t, dir+"/a.yaml", "web 2")
	sink.waitPods(t, "web-2")
	rename(t, dir+"/a.yaml", dir+"/a.off") // not a manifest name
	sink.waitPods(t, "")
	rename(t, dir+"/a.off", dir+"/a.yaml")
	sink.waitPods(t, "web-2")
	remove(t, dir+"/a.yaml")
	sink.waitPods(t, "")
}

// A hidden file is never a manifest, but its change triggers a scan: that reveals a replaced ..data link.
func TestCFG19_HiddenFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1")
	sink := startSource(t, newFile(t, dir))
	sink.waitPods(t, "web-1")
	write(t, dir+"/.b.yaml", "hidden 1")
	write(t, dir+"/c.yaml", "db 1")
	sink.waitPods(t, "db-1 web-1")
}

func TestCFG23_DirectoryCreatedLater(t *testing.T) {
	dir := t.TempDir() + "/later"
	sink := startSource(t, newFile(t, dir))
	sink.waitPods(t, "")
	mkdir(t, dir)
	write(t, dir+"/a.yaml", "web 1")
	sink.waitPods(t, "web-1")
	sink.waitNoProblem(t)
}

func TestCFG24_RemovedBetweenRuns(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1")
	write(t, dir+"/b.yaml", "db 1")
	if before := newFile(t, dir).Scan(); len(before.Pods) != 2 {
		t.Fatalf("got pods %q, want 2", uids(before.Pods))
	}
	remove(t, dir+"/a.yaml")
	after := newFile(t, dir).Scan() // after a restart of the agent
	if !after.Known || uids(after.Pods) != "db-1" {
		t.Fatalf("got pods %q, known %v; want db-1, true", uids(after.Pods), after.Known)
	}
}

func TestFile_RealManifests(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir+"/web.yaml",
		realManifest("web", "registry.example/web:1")+"---\n"+realManifest("db", "registry.example/db:1"))
	f := newFile(t, dir, func(c *source.FileConfig) { c.Decode = nil })
	first := f.Scan()
	if len(first.Pods) != 2 || len(first.Problems) > 0 {
		t.Fatalf("got pods %q, problems %v; want 2 pods, none", uids(first.Pods), first.Problems)
	}
	if p := first.Pods[0]; p.Name != "web-n1" || p.Spec.NodeName != node || p.UID == "" || podid.HashOf(p) == "" {
		t.Fatalf("got %+v, want a static pod of this node", p.ObjectMeta)
	}

	rename(t, path, dir+"/renamed.yaml")
	if renamed := f.Scan(); uids(renamed.Pods) != uids(first.Pods) {
		t.Fatalf("renamed file: got pods %q, want %q", uids(renamed.Pods), uids(first.Pods))
	}

	invalid := strings.Replace(realManifest("web", "registry.example/web:2"), "image:", "imagee:", 1)
	write(t, dir+"/renamed.yaml", invalid)
	listing := f.Scan()
	if uids(listing.Pods) != uids(first.Pods) {
		t.Fatalf("invalid file: got pods %q, want %q", uids(listing.Pods), uids(first.Pods))
	}
	found := false
	for _, p := range listing.Problems {
		found = found || p.Location == dir+"/renamed.yaml" && p.Line == 11 && strings.Contains(p.Field+p.Message, "imagee")
		if strings.Contains(p.Message, dir) {
			t.Errorf("got message %q, want it without the location", p.Message)
		}
	}
	if !found {
		t.Fatalf("got problems %q, want one with file, line and field", problemText(listing.Problems))
	}

	write(t, dir+"/renamed.yaml", "# only a comment\n")
	if commented := f.Scan(); uids(commented.Pods) != uids(first.Pods) || len(commented.Problems) != 1 {
		t.Fatalf("got pods %q, problems %v; want the pods of the last version, one problem", uids(commented.Pods), commented.Problems)
	}
	write(t, dir+"/renamed.yaml", "apiVersion: v1\nkind: PodList\nitems: []\n")
	if none := f.Scan(); len(none.Pods) > 0 || len(none.Problems) > 0 {
		t.Fatalf("got pods %q, problems %v; want none", uids(none.Pods), none.Problems)
	}
}

func TestFileConfig_Validation(t *testing.T) {
	tests := map[string]struct {
		config source.FileConfig
		want   string
	}{
		"no path": {source.FileConfig{NodeName: node}, "source.FileConfig: Path is required"},
		"no node": {source.FileConfig{Path: "/x"}, "source.FileConfig: NodeName is required"},
		"negative period": {
			source.FileConfig{Path: "/x", NodeName: node, Period: -1}, "source.FileConfig: Period must not be negative",
		},
		"negative settle": {
			source.FileConfig{Path: "/x", NodeName: node, Settle: -1}, "source.FileConfig: Settle must not be negative",
		},
		"extension without a dot": {
			source.FileConfig{Path: "/x", NodeName: node, Extensions: []string{"*", ".yaml", "yml"}},
			`source.FileConfig: Extensions must be like .yaml or *, not "yml"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := source.NewFile(test.config); err == nil || err.Error() != test.want {
				t.Fatalf("got error %v, want %s", err, test.want)
			}
		})
	}
}
