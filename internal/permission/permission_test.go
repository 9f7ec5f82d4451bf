package permission_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/internal/permission"
)

// aclEntry is an entry of an access control list for a user or group.
type aclEntry struct {
	tag, permissions uint16
	id               uint32
}

// setACL gives the file an access control list: owner rwx, owning group, the given entry and a mask of rwx.
func setACL(t *testing.T, path string, owningGroup uint16, entry aclEntry) {
	t.Helper()
	const noID = 0xffffffff
	acl := binary.LittleEndian.AppendUint32(nil, 2)
	add := func(tag, permissions uint16, id uint32) {
		acl = binary.LittleEndian.AppendUint16(acl, tag)
		acl = binary.LittleEndian.AppendUint16(acl, permissions)
		acl = binary.LittleEndian.AppendUint32(acl, id)
	}
	add(0x01, 7, noID)
	if entry.tag == 0x02 {
		add(entry.tag, entry.permissions, entry.id)
	}
	add(0x04, owningGroup, noID)
	if entry.tag == 0x08 {
		add(entry.tag, entry.permissions, entry.id)
	}
	add(0x10, 7, noID)
	add(0x20, 0, noID)
	err := unix.Setxattr(path, "system.posix_acl_access", acl, 0)
	if errors.Is(err, unix.ENOTSUP) {
		t.Skip("the file system has no access control lists")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestChecker_ACL covers files whose group bits are the mask of an access control list.
func TestChecker_ACL(t *testing.T) {
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	const user, group = 0x02, 0x08
	tests := map[string]struct {
		owningGroup, tag, permissions uint16
		id                            uint32
		want                          string // "" if it is allowed
	}{
		"other user writes": {0, user, 7, 1234, "is writable by user 1234 through an access control list, so that user could start pods (setfacl -x u:1234 "},
		"other group writes": {
			4, group, 2, 1234,
			"is writable by group 1234 through an access control list, so its members could start pods (setfacl -x g:1234 ",
		},
		"other user reads":   {0, user, 4, 1234, ""},
		"other group reads":  {4, group, 5, 1234, ""},
		"trusted user":       {0, user, 7, uid, ""},
		"trusted group":      {0, group, 7, gid, ""},
		"owning group":       {7, user, 4, 1234, ""},
		"root writes":        {0, user, 7, 0, ""},
		"owning group reads": {5, user, 5, 1234, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			setACL(t, path, test.owningGroup, aclEntry{test.tag, test.permissions, test.id})
			err := permission.New("start pods").CheckFile(path)
			if got := errorText(err); !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestCheckSecret covers readers by mode and by an access control list, and directories that protect a file.
func TestCheckSecret(t *testing.T) {
	const user, group = 0x02, 0x08
	dir, err := os.MkdirTemp("", "herald-public-") //nolint:usetesting // t.TempDir belongs to the user alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, test := range map[string]struct {
		mode os.FileMode
		acl  *aclEntry
		want string
	}{
		"owner":              {0o600, nil, ""},
		"trusted group":      {0o640, nil, ""},
		"everybody":          {0o644, nil, "can be read by every user (mode 0644)"},
		"everybody modifies": {0o602, nil, "is world-writable"},
		"user by list":       {0o600, &aclEntry{user, 4, 1234}, "can be read by user 1234"},
		"group by list":      {0o600, &aclEntry{group, 4, 1234}, "can be read by group 1234"},
		"listed, no access":  {0o600, &aclEntry{user, 0, 1234}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "f")
			if err := errors.Join(os.Chmod(dir, 0o755), os.RemoveAll(path), os.WriteFile(path, nil, 0o600), os.Chmod(path, test.mode)); err != nil {
				t.Fatal(err)
			}
			if test.acl != nil {
				setACL(t, path, 0, *test.acl)
			}
			checker := permission.New("start pods")
			if got := errorText(checker.CheckSecret(path)); !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := checker.CheckSecret(path); strings.Contains(test.want, "read") && err != nil {
				t.Errorf("private directory: got error %v", err)
			}
		})
	}
}

func TestChecker_CheckFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", path+".link"); err != nil {
		t.Fatal(err)
	}
	checker := permission.New("start pods")
	for _, test := range []struct {
		checker permission.Checker
		mode    os.FileMode
		want    string
	}{
		{checker, 0o644, ""},
		{checker, 0o660, ""},
		{checker, 0o646, path + ".link is world-writable (mode 0646), so any user could start pods (chmod o-w " + path + ".link)"},
	} {
		if err := os.Chmod(path, test.mode); err != nil {
			t.Fatal(err)
		}
		if got := errorText(test.checker.CheckFile(path + ".link")); got != test.want {
			t.Errorf("mode %o: got %q, want %q", test.mode, got, test.want)
		}
	}
	if err := checker.CheckFile(path + ".missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: got %v", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
