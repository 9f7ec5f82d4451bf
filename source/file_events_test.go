package source_test

import "testing"

func TestCFG18AChangedFileIsReadAtOnceAndARemovedOneTakesItsPodAlong(t *testing.T) {
	dir := t.TempDir()
	sink := start(t, newFile(t, dir))
	sink.waitPods(t, "")
	write(t, dir+"/a.yaml", "web 1")
	sink.waitPods(t, "web-1")
	write(t, dir+"/a.yaml", "web 2")
	sink.waitPods(t, "web-2")
	rename(t, dir+"/a.yaml", dir+"/a.off") // away, as far as manifests go
	sink.waitPods(t, "")
	rename(t, dir+"/a.off", dir+"/a.yaml")
	sink.waitPods(t, "web-2")
	remove(t, dir+"/a.yaml")
	sink.waitPods(t, "")
}

// A hidden file is never a manifest, but a change of one makes the folder be looked at again: that is how a ..data link
// that is swapped is noticed.
func TestCFG19AHiddenFileIsNoManifest(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1")
	sink := start(t, newFile(t, dir))
	sink.waitPods(t, "web-1")
	write(t, dir+"/.b.yaml", "hidden 1")
	write(t, dir+"/c.yaml", "db 1")
	sink.waitPods(t, "db-1 web-1")
}

func TestCFG23AFolderThatAppearsLaterIsRead(t *testing.T) {
	dir := t.TempDir() + "/later"
	sink := start(t, newFile(t, dir))
	sink.waitPods(t, "")
	mkdir(t, dir)
	write(t, dir+"/a.yaml", "web 1")
	sink.waitPods(t, "web-1")
	sink.waitNoProblem(t)
}

func TestCFG24AFileThatWentWhileNobodyLookedIsNotThere(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", "web 1")
	write(t, dir+"/b.yaml", "db 1")
	if before := newFile(t, dir).Scan(); len(before.Pods) != 2 {
		t.Fatalf("pods are %v", names(before.Pods))
	}
	remove(t, dir+"/a.yaml")
	after := newFile(t, dir).Scan() // the agent of the next start
	if !after.Known || names(after.Pods) != "db-1" {
		t.Fatalf("pods are %v, known: %v", names(after.Pods), after.Known)
	}
}
