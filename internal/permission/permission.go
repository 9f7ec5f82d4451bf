// Package permission checks that only root and the agent's user can modify what the agent trusts: manifests, its
// configuration, credentials and the files that a shim executes.
package permission

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Checker checks owner and permissions of files and directories.
type Checker struct {
	// UID and GID are the user and group that are trusted besides root.
	UID, GID uint32
	// Risk completes the sentence "... so any user could", for example "start pods".
	Risk string
}

// New returns a Checker that trusts the effective user and group of this process.
func New(risk string) Checker {
	return Checker{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Risk: risk}
}

// CheckFile checks the file or directory at the path, after following symbolic links. Its errors name the path.
func (c Checker) CheckFile(path string) error {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if err := c.Check(path, &stat); err != nil {
		return fmt.Errorf("%s %w", path, err)
	}
	return nil
}

const (
	groupWrite = 0o020
	otherWrite = 0o002
)

// Check returns an error if users other than root and the trusted user can write the file or directory. A group may have
// write access only if it is root's or the trusted one. The path is used to read the access control list, and it is part
// of the remedy. The caller adds it as the subject of the sentence.
func (c Checker) Check(path string, stat *unix.Stat_t) error {
	mode := uint32(stat.Mode) & 0o7777 //nolint:unconvert // its type differs between operating systems
	switch {
	case stat.Uid != 0 && stat.Uid != c.UID:
		return fmt.Errorf("is owned by user %d, not by root or the agent's user %d (chown %d %s)", stat.Uid, c.UID, c.UID, path)
	case mode&otherWrite != 0:
		return fmt.Errorf("is world-writable (mode %04o), so any user could %s (chmod o-w %s)", mode, c.Risk, path)
	case mode&groupWrite == 0:
		return nil // this excludes writers by an access control list too: its mask is shown as the group's bits
	}
	entries, err := readACL(path)
	if err != nil {
		return fmt.Errorf("has an access control list that cannot be read: %w", err)
	}
	if entries != nil {
		return c.checkACL(path, stat.Gid, entries)
	}
	if !c.trustsGroup(stat.Gid) {
		return fmt.Errorf("is writable by group %d (mode %04o), so its members could %s (chmod g-w %s)", stat.Gid, mode, c.Risk, path)
	}
	return nil
}

func (c Checker) trustsGroup(gid uint32) bool { return gid == 0 || gid == c.GID }

// checkACL checks the entries that grant write access. The caller knows that the mask does not remove it.
func (c Checker) checkACL(path string, gid uint32, entries []aclEntry) error {
	for _, entry := range entries {
		if entry.permissions&aclWrite == 0 {
			continue
		}
		switch {
		case entry.tag == aclUser && entry.id != 0 && entry.id != c.UID:
			return fmt.Errorf("is writable by user %d through an access control list, so that user could %s (setfacl -x u:%d %s)",
				entry.id, c.Risk, entry.id, path)
		case entry.tag == aclGroup && !c.trustsGroup(entry.id):
			return fmt.Errorf("is writable by group %d through an access control list, so its members could %s (setfacl -x g:%d %s)",
				entry.id, c.Risk, entry.id, path)
		case entry.tag == aclOwningGroup && !c.trustsGroup(gid):
			return fmt.Errorf("is writable by group %d through an access control list, so its members could %s (setfacl -m g::r %s)",
				gid, c.Risk, path)
		}
	}
	return nil
}

// The format of the extended attribute, see linux/posix_acl_xattr.h.
const (
	aclAttribute   = "system.posix_acl_access"
	aclVersion     = 2
	aclHeaderSize  = 4
	aclEntrySize   = 8
	aclUser        = 0x02
	aclOwningGroup = 0x04
	aclGroup       = 0x08
	aclRead        = 0x04
	aclWrite       = 0x02
	maxACLSize     = 64 << 10 // the kernel's limit of an extended attribute
)

type aclEntry struct {
	tag, permissions uint16
	id               uint32
}

// readACL returns nil if there is no access control list.
func readACL(path string) ([]aclEntry, error) {
	data := make([]byte, maxACLSize)
	size, err := unix.Getxattr(path, aclAttribute, data)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseACL(data[:size])
}

func parseACL(data []byte) ([]aclEntry, error) {
	if len(data) < aclHeaderSize || (len(data)-aclHeaderSize)%aclEntrySize != 0 || binary.LittleEndian.Uint32(data) != aclVersion {
		return nil, errors.New("unknown format")
	}
	entries := []aclEntry{}
	for data = data[aclHeaderSize:]; len(data) > 0; data = data[aclEntrySize:] {
		entries = append(entries, aclEntry{
			tag: binary.LittleEndian.Uint16(data), permissions: binary.LittleEndian.Uint16(data[2:]),
			id: binary.LittleEndian.Uint32(data[4:]),
		})
	}
	return entries, nil
}
