package source_test

import (
	"os"
	"strings"
	"testing"

	"github.com/heraldnode/herald/source"
)

// spoiling changes who may write somewhere under dir.
type spoiling func(t *testing.T, dir string)

func mode(path string, bits os.FileMode) spoiling {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := os.Chmod(dir+path, bits); err != nil {
			t.Fatal(err)
		}
	}
}

// given gives a path to another user or group. A group may also write.
func given(path string, uid, gid int) spoiling {
	return func(t *testing.T, dir string) {
		t.Helper()
		if os.Geteuid() != 0 {
			t.Skip("needs root to give files away")
		}
		if err := os.Chown(dir+path, uid, gid); err != nil {
			t.Fatal(err)
		}
		if gid != 0 {
			mode(path, 0o775)(t, dir)
		}
	}
}

func TestManifestsThatOthersCanWriteAreRefused(t *testing.T) {
	const harm = "could start any pod with it"
	tests := map[string]struct {
		spoil spoiling
		want  string // DIR stands for the directory; "" when it is allowed
	}{
		"file for all": {
			mode("/m/a.yaml", 0o666), "DIR/m/a.yaml: has mode 0666, so everybody " + harm + " (chmod o-w DIR/m/a.yaml)",
		},
		"folder for all": {
			mode("/m", 0o777),
			"DIR/m: has mode 0777, so everybody " + harm + " (chmod o-w DIR/m); its pods stay as they are (2)",
		},
		"even if sticky": {mode("/m", os.ModeSticky|0o777), "DIR/m: has mode 1777"},
		"target for all": {mode("/m/..v/1/b", 0o666), "DIR/m/b.yaml: has mode 0666"},
		"target's folder for all": {
			mode("/m/..v/1", 0o777),
			"DIR/m/b.yaml: leads to DIR/m/..v/1, which has mode 0777, so everybody " + harm + " (chmod o-w DIR/m/..v/1)",
		},
		"a folder on the way for all": {
			mode("/m/..v", 0o777),
			"DIR/m/b.yaml: leads to DIR/m/..v, which has mode 0777, so everybody " + harm + " (chmod o-w DIR/m/..v)",
		},
		"another's file": {
			given("/m/a.yaml", 1234, 0), "DIR/m/a.yaml: belongs to user 1234, who " + harm +
				", and not to root or to user 0, whom the agent runs as (chown 0 DIR/m/a.yaml)",
		},
		"another's folder": {given("/m", 1234, 0), "DIR/m: belongs to user 1234"},
		"a group's folder": {
			given("/m", 0, 1234), "DIR/m: has mode 0775, so everybody in group 1234 " + harm + " (chmod g-w DIR/m)",
		},
		"own group":       {mode("/m", 0o775), ""},
		"readable by all": {mode("/m/a.yaml", 0o444), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { checkSpoiled(t, test.spoil, test.want) })
	}
}

func checkSpoiled(t *testing.T, spoil spoiling, want string) {
	t.Helper()
	dir := t.TempDir()
	mkdir(t, dir+"/m")
	mkdir(t, dir+"/m/..v")
	mkdir(t, dir+"/m/..v/1")
	write(t, dir+"/m/a.yaml", "web 1")
	symlink(t, write(t, dir+"/m/..v/1/b", "db 1"), dir+"/m/b.yaml")
	f := newFile(t, dir+"/m")
	if got := names(f.Scan().Pods); got != "db-1 web-1" {
		t.Fatalf("before: pods %q", got)
	}
	spoil(t, dir)
	listing := f.Scan()
	got := strings.ReplaceAll(texts(listing.Problems), dir, "DIR")
	if !strings.Contains(got, want) || (got == "") != (want == "") {
		t.Errorf("problems %q, want %q", got, want)
	}
	if got := names(listing.Pods); got != "db-1 web-1" {
		t.Errorf("pods %q, want the last good ones", got)
	}
	lax := newFile(t, dir+"/m", func(c *source.FileConfig) { c.AllowUnsafePermissions = true })
	if listing := lax.Scan(); len(listing.Problems) > 0 || len(listing.Pods) != 2 {
		t.Errorf("AllowUnsafePermissions: %+v", listing)
	}
	if strings.HasPrefix(want, "DIR/m: ") {
		if fresh := newFile(t, dir+"/m").Scan(); fresh.Known || len(fresh.Pods) > 0 {
			t.Errorf("an agent that starts reads it: %+v", fresh)
		}
	}
	for _, path := range []string{"/m", "/m/a.yaml", "/m/..v", "/m/..v/1", "/m/..v/1/b"} {
		mode(path, 0o755)(t, dir)
		if os.Geteuid() == 0 {
			given(path, 0, 0)(t, dir)
		}
	}
	if listing := f.Scan(); len(listing.Problems) > 0 || names(listing.Pods) != "db-1 web-1" {
		t.Errorf("when it is repaired: %+v", listing)
	}
}

func TestASingleFileInAFolderOfOthersIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir+"/pod.yaml", "web 1")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	want := path + ": is in " + dir + ", which has mode 0777, so everybody could start any pod with it (chmod o-w " + dir +
		"); its pods are unknown"
	if got := newFile(t, path).Scan(); got.Known || texts(got.Problems) != want {
		t.Fatalf("%+v, want %q", got, want)
	}
}

func TestALinkOutOfTheFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, dir+"/m")
	write(t, dir+"/m/a.yaml", "web 1")
	out := write(t, dir+"/out.yaml", "db 1")
	for name, target := range map[string]string{"absolute.yaml": out, "relative.yaml": "../out.yaml"} {
		symlink(t, target, dir+"/m/"+name)
		link := dir + "/m/" + name
		want := link + ": leads to " + out + ", out of the manifest folder (cp --remove-destination " + out + " " + link + ")"
		if got := newFile(t, dir+"/m").Scan(); names(got.Pods) != "web-1" || texts(got.Problems) != want {
			t.Errorf("pods %q, problems %q, want %q", names(got.Pods), texts(got.Problems), want)
		}
		lax := newFile(t, dir+"/m", func(c *source.FileConfig) { c.AllowUnsafePermissions = true })
		if got := names(lax.Scan().Pods); got != "db-1 web-1" {
			t.Errorf("AllowUnsafePermissions: pods %q", got)
		}
		remove(t, link)
	}
}

func TestALinkOutThatTakesAFilesPlaceChangesNothing(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, dir+"/m")
	write(t, dir+"/m/a.yaml", "web 1")
	f := newFile(t, dir+"/m")
	f.Scan()
	symlink(t, write(t, dir+"/out.yaml", "web 2"), dir+"/next")
	rename(t, dir+"/next", dir+"/m/a.yaml")
	if got := f.Scan(); names(got.Pods) != "web-1" || len(got.Problems) != 1 {
		t.Errorf("pods %q, problems %v", names(got.Pods), got.Problems)
	}
}
