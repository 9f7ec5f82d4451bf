package source_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/source/manifest"
)

// never is a Period that leaves everything to notifications.
const never = time.Hour

func newFile(tb testing.TB, path string, edits ...func(*source.FileConfig)) *source.File {
	tb.Helper()
	config := source.FileConfig{Path: path, NodeName: node, Period: never, Settle: 5 * time.Millisecond, Decode: decode}
	for _, edit := range edits {
		edit(&config)
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

// aged makes a file look as if nobody had written to it for long.
func aged(tb testing.TB, path string) string {
	tb.Helper()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		tb.Fatal(err)
	}
	return path
}

// install puts a file in place as deployment tools do.
func install(tb testing.TB, path, content string) {
	tb.Helper()
	write(tb, filepath.Dir(path)+"/.installing", content)
	rename(tb, filepath.Dir(path)+"/.installing", path)
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

func TestCFG12ADirectoryIsReadAndWatched(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1\nsidecar 1")
	write(t, dir+"/b.json", "db 1")
	sink := start(t, newFile(t, dir+"//"))
	sink.waitPods(t, "db-1 sidecar-1 web-1")
	write(t, dir+"/c.yml", "log 1")
	sink.waitPods(t, "db-1 log-1 sidecar-1 web-1")
	write(t, dir+"/c.yml", "log 2")
	sink.waitPods(t, "db-1 log-2 sidecar-1 web-1")
	remove(t, dir+"/a.yaml")
	sink.waitPods(t, "db-1 log-2")
}

func TestCFG14AndBUG32OnlyManifestsAreRead(t *testing.T) {
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
	sink := start(t, f)
	sink.waitPods(t, "web-1")
	sink.waitNoProblem(t)
	var want []string
	for _, name := range []string{
		"#d.yaml#", "README.md", "b.yaml.bak", "c.yaml~", "e.yaml-bak", "f.yaml.swp", "g.yml.dpkg-dist", "h.yaml.rpmsave",
		"i.yaml.orig", "j.yaml.tmp", "plain",
	} {
		want = append(want, dir+"/"+name)
	}
	if diff := cmp.Diff(want, f.Ignored()); diff != "" {
		t.Fatalf("ignored (-want +got):\n%s", diff)
	}
}

func TestBUG32EveryExtensionCanBeAskedFor(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/etcd", "etcd 1")
	write(t, dir+"/etcd.bak", "etcd 0")
	write(t, dir+"/.etcd", "etcd 0")
	f := newFile(t, dir, func(c *source.FileConfig) { c.Extensions = []string{source.AnyExtension} })
	if got := names(f.Scan().Pods); got != "etcd-1" {
		t.Fatalf("pods %q", got)
	}
}

func TestCFG15AndBUG18ABrokenEditKeepsTheLastGoodPod(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1")
	write(t, dir+"/b.yaml", "db 1")
	sink := start(t, newFile(t, dir, func(c *source.FileConfig) { c.Period = 10 * time.Millisecond }))
	sink.waitPods(t, "db-1 web-1")
	for _, broken := range []string{"web", "", "web 2\n!"} {
		write(t, dir+"/a.yaml", broken)
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

func TestCFG16AndBUG19ARemovedPodNeverComesBackByItself(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1")
	sink := start(t, newFile(t, dir, func(c *source.FileConfig) { c.Period = 10 * time.Millisecond }))
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

func TestCFG17AFileThatWasNeverGoodSaysNothing(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir+"/pod", "broken")
	sink := start(t, newFile(t, path))
	sink.waitProblem(t, path+":1: metadata: want a name and a version")
	if sets, _, _ := sink.told(); sets != 0 {
		t.Fatal("a set was told")
	}
	write(t, path, "web 1")
	sink.waitPods(t, "web-1")
	write(t, path, "broken")
	sink.waitProblem(t, path)
	write(t, path, "none")
	sink.waitPods(t, "")
}

func TestCFG20TheFileThatHadAPodKeepsItAndTheOtherFollows(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/b.yaml", "web b1")
	sink := start(t, newFile(t, dir))
	sink.waitPods(t, "web-b1")
	write(t, dir+"/a.yaml", "web a1\nlog 1")
	sink.waitPods(t, "log-1 web-b1")
	sink.waitProblem(t, dir+"/a.yaml: metadata.name: pod web in namespace default is left out, because "+dir+
		"/b.yaml defines it too; remove one of them")
	write(t, dir+"/b.yaml", "web b2")
	sink.waitPods(t, "log-1 web-b2")
	rename(t, dir+"/b.yaml", dir+"/c.yaml") // the name goes to the first file that defines it
	sink.waitPods(t, "log-1 web-a1")
	remove(t, dir+"/a.yaml")
	sink.waitPods(t, "web-b2")
	sink.waitNoProblem(t)
}

func TestAtTheStartTheFirstFileHasThePod(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/b.yaml", "web b")
	write(t, dir+"/a.yaml", "web a")
	if got := names(newFile(t, dir).Scan().Pods); got != "web-a" {
		t.Fatalf("pods %q", got)
	}
}

func TestCFG21AnAtomicReplaceIsOneChange(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1")
	sink := start(t, newFile(t, dir))
	sink.waitPods(t, "web-1")
	install(t, dir+"/a.yaml", "web 2")
	sink.waitPods(t, "web-2")
	if diff := cmp.Diff([]string{"web-1", "web-2"}, sink.history); diff != "" {
		t.Fatalf("sets (-want +got):\n%s", diff)
	}
}

func TestAnUnchangedDirectoryIsNotParsedAgainAndAChangedFileOnce(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		write(t, dir+"/"+name+".yaml", name+" 1")
	}
	parsed := 0
	f := newFile(t, dir, func(c *source.FileConfig) {
		c.Decode = func(data []byte, origin manifest.Origin) ([]*v1.Pod, error) {
			parsed++
			return decode(data, origin)
		}
	})
	first := f.Scan().Pods
	second := f.Scan().Pods
	if parsed != 3 || first[0] != second[0] {
		t.Fatalf("%d parsed, want 3 and the same objects again", parsed)
	}
	write(t, dir+"/b.yaml", "b 2")
	if got := names(f.Scan().Pods); parsed != 4 || got != "a-1 b-2 c-1" {
		t.Fatalf("%d parsed, pods %q", parsed, got)
	}
}

func TestChangesWithinOneTickOfTheClockAreSeen(t *testing.T) {
	path := t.TempDir() + "/pod"
	f := newFile(t, path)
	for i := range 200 { // each in place, of equal length; before Linux 6.13, most within the tick of the one before
		want := "web-" + string(rune('a'+i%26))
		write(t, path, "web "+string(rune('a'+i%26)))
		if got := names(f.Scan().Pods); got != want {
			t.Fatalf("rewrite %d: pods %q, want %q", i, got, want)
		}
	}
}

func TestARenamedFileIsTheSamePod(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1")
	f := newFile(t, dir)
	f.Scan()
	rename(t, dir+"/a.yaml", dir+"/b.yaml")
	if got := f.Scan(); names(got.Pods) != "web-1" || len(got.Problems) > 0 {
		t.Fatalf("pods %q, problems %v", names(got.Pods), got.Problems)
	}
}

func TestAFileThatIsRenamedDuringTheListingIsNotTakenForRemoved(t *testing.T) {
	dir := t.TempDir()
	here, there := write(t, dir+"/a.yaml", "web 1"), dir+"/b.yaml"
	for i := range 2000 { // names around it, so that the kernel lists it in several steps
		write(t, fmt.Sprintf("%s/%04d", dir, i), "")
	}
	f := newFile(t, dir)
	f.Scan()
	for range 80 {
		var renamed sync.WaitGroup
		renamed.Go(func() { rename(t, here, there) })
		listing := f.Scan()
		renamed.Wait()
		if got := names(listing.Pods); got != "web-1" {
			t.Fatalf("pods %q, problems %v", got, listing.Problems)
		}
		f.Scan()
		here, there = there, here
	}
}

func TestF20AFileThatIsStillBeingWrittenIsNotRead(t *testing.T) {
	dir := t.TempDir()
	sink := start(t, newFile(t, dir, func(c *source.FileConfig) { c.Settle = 300 * time.Millisecond }))
	sink.waitPods(t, "")
	stop := keepWriting(t, dir+"/a.yaml", "web half") // valid, but not what its author means
	for range 2 {                                     // looks at the directory
		sink.mu.Lock()
		looked := sink.changed
		sink.mu.Unlock()
		<-looked
	}
	stop()
	write(t, dir+"/a.yaml", "web whole")
	sink.waitPods(t, "web-whole")
	if diff := cmp.Diff([]string{"", "web-whole"}, sink.history); diff != "" {
		t.Fatalf("sets (-want +got):\n%s", diff)
	}
}

func TestAFileThatIsWrittenWithoutAPauseIsReadInTheEnd(t *testing.T) {
	dir := t.TempDir()
	sink := start(t, newFile(t, dir, func(c *source.FileConfig) {
		c.Settle, c.Period = 500*time.Millisecond, 100*time.Millisecond
	}))
	defer keepWriting(t, dir+"/a.yaml", "web 1")()
	sink.waitPods(t, "web-1")
}

// keepWriting writes the same bytes to the file over and over until stop is called.
func keepWriting(t *testing.T, path, content string) (stop func()) {
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

func TestTheFileSourceSaysWhichFieldOfItsConfigurationIsWrong(t *testing.T) {
	tests := map[string]struct {
		config source.FileConfig
		want   string
	}{
		"no path": {source.FileConfig{NodeName: node}, "source.FileConfig.Path: required"},
		"no node": {source.FileConfig{Path: "/x"}, "source.FileConfig.Node: required"},
		"negative period": {
			source.FileConfig{Path: "/x", NodeName: node, Period: -1}, "source.FileConfig.Period: -1ns is negative",
		},
		"negative settle": {
			source.FileConfig{Path: "/x", NodeName: node, Settle: -1}, "source.FileConfig.Settle: -1ns is negative",
		},
		"an extension without its dot": {
			source.FileConfig{Path: "/x", NodeName: node, Extensions: []string{"*", ".yaml", "yml"}},
			`source.FileConfig.Extensions: "yml" is not like .yaml or *`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := source.NewFile(test.config); err == nil || err.Error() != test.want {
				t.Fatalf("error %v, want %s", err, test.want)
			}
		})
	}
}
