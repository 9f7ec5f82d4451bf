package diff_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/source"
)

// folder is read by both sides.
type folder struct {
	t       *testing.T
	dir     string
	kubelet *kubelet.Manifests
	herald  *source.File
}

func newFolder(t *testing.T) *folder {
	t.Helper()
	dir := t.TempDir()
	files, err := source.NewFile(source.FileConfig{Path: dir, NodeName: node})
	if err != nil {
		t.Fatal(err)
	}
	return &folder{t: t, dir: dir, kubelet: kubelet.NewManifests(dir, node), herald: files}
}

func (f *folder) write(file, content string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, file), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func podNamed(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: main, image: web}]}\n", name)
}

// pods is which pods each would run now.
func (f *folder) pods() (kubelet, herald []string) {
	f.t.Helper()
	theirs, err := f.kubelet.List()
	if err != nil {
		f.t.Fatal(err)
	}
	return namesOf(theirs), namesOf(f.herald.Scan().Pods)
}

func namesOf(pods []*v1.Pod) []string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

func TestCFG14AFolderOfGoodManifestsGivesBothTheSamePods(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", podNamed("a"))
	f.write("b.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"},"spec":{"containers":[{"name":"main","image":"web"}]}}`)
	f.write(".hidden.yaml", podNamed("hidden"))
	if err := os.Mkdir(filepath.Join(f.dir, "deeper"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.write("deeper/c.yaml", podNamed("c"))
	kubelet, herald := f.pods()
	if want := []string{"a-node-1", "b-node-1"}; !slices.Equal(kubelet, want) || !slices.Equal(herald, want) {
		t.Fatalf("kubelet %v, Herald %v, want %v", kubelet, herald, want)
	}
	if err := os.Remove(filepath.Join(f.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if kubelet, herald = f.pods(); !slices.Equal(kubelet, herald) {
		t.Fatalf("after a removal: kubelet %v, Herald %v", kubelet, herald)
	}
}

func TestBUG18ABrokenEditDoesNotEndThePod(t *testing.T) {
	f := newFolder(t)
	f.write("web.yaml", podNamed("web"))
	f.pods()
	f.write("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web\n")
	kubelet, herald := f.pods()
	if len(kubelet) != 0 {
		t.Errorf("the kubelet no longer has this fault: it runs %v", kubelet)
	}
	if !slices.Equal(herald, []string{"web-node-1"}) {
		t.Errorf("Herald runs %v", herald)
	}
	if problems := f.herald.Scan().Problems; len(problems) != 1 || problems[0].Line == 0 {
		t.Errorf("Herald says %v", problems)
	}
}

func TestBUG32ABackupFileIsNoManifest(t *testing.T) {
	f := newFolder(t)
	f.write("web.yaml", podNamed("web"))
	f.write("web.yaml.bak", podNamed("old"))
	kubelet, herald := f.pods()
	if !slices.Contains(kubelet, "old-node-1") {
		t.Errorf("the kubelet no longer has this fault: it runs %v", kubelet)
	}
	if !slices.Equal(herald, []string{"web-node-1"}) {
		t.Errorf("Herald runs %v", herald)
	}
}

func TestCFG20OfTwoFilesWithOnePodTheFirstKeepsIt(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", podNamed("web"))
	f.pods()
	f.write("b.yaml", podNamed("web"))
	kubelet, herald := f.pods()
	if len(kubelet) != 2 {
		t.Errorf("the kubelet no longer has this fault: it reads %v", kubelet)
	}
	if problems := f.herald.Scan().Problems; len(herald) != 1 || len(problems) != 1 {
		t.Errorf("Herald runs %v and says %v", herald, problems)
	}
}
