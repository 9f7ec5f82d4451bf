package provision

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// tmpfs is a file system in memory that a volume is made of.
type tmpfs struct {
	mode  os.FileMode
	group *int64
	size  int64 // bytes; 0: the kernel's default
	// private is for what only this process writes: it holds no devices, and nothing in it gives rights.
	private bool
}

func mayMount() bool { return os.Geteuid() == 0 }

func isNotAllowed(err error) bool { return errors.Is(err, fs.ErrPermission) }

func mountTmpfs(folder string, with tmpfs) error {
	mode, options := uint32(with.mode.Perm()), ""
	if with.group != nil {
		mode |= unix.S_ISGID
		options = fmt.Sprintf(",gid=%d", *with.group)
	}
	if with.size > 0 {
		options += fmt.Sprintf(",size=%d", with.size)
	}
	options = fmt.Sprintf("mode=%o%s", mode, options)
	var flags uintptr
	if with.private {
		flags = unix.MS_NOSUID | unix.MS_NODEV
	}
	err := unix.Mount("tmpfs", folder, "tmpfs", flags, options+",noswap")
	if errors.Is(err, unix.EINVAL) { // kernels before 6.3 know no noswap
		err = unix.Mount("tmpfs", folder, "tmpfs", flags, options)
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs (%s) at %s: %w", options, folder, err)
	}
	return nil
}

// isTmpfs reports whether the folder is itself a mount, and one in memory. Anything else that is mounted there is not
// ours, and an error.
func isTmpfs(folder string) (bool, error) {
	opened, err := os.OpenFile(folder, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if err != nil {
		return false, err
	}
	defer opened.Close()
	return isTmpfsMount(opened)
}

func isTmpfsMount(opened *os.File) (bool, error) {
	var about unix.Statx_t
	if err := unix.Statx(int(opened.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_TYPE, &about); err != nil {
		return false, fmt.Errorf("see whether something is mounted at %s: %w", opened.Name(), err)
	}
	if about.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, errors.New("see what is mounted: the kernel is older than 5.8")
	}
	if about.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, nil
	}
	var system unix.Statfs_t
	if err := unix.Fstatfs(int(opened.Fd()), &system); err != nil {
		return false, fmt.Errorf("see what is mounted at %s: %w", opened.Name(), err)
	}
	if system.Type != unix.TMPFS_MAGIC {
		return false, fmt.Errorf("%s: %w", opened.Name(), errForeignMount)
	}
	return true, nil
}

// errForeignMount is that something is mounted where only volumes are, and not by us.
var errForeignMount = errors.New("something is mounted there that is not a volume; unmount it")
