package certificate

import (
	"errors"
	"os"
	"path/filepath"
)

// replaceFile replaces a file, readable only to its owner: after a crash it has the old or the new content.
func replaceFile(path string, content []byte) error {
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	_ = os.Remove(temporary) // a leftover; if it remains, creating the file fails
	if err := createFile(temporary, content); err != nil {
		return errors.Join(err, removeIfExists(temporary))
	}
	if err := os.Rename(temporary, path); err != nil {
		return errors.Join(err, removeIfExists(temporary))
	}
	return syncDir(filepath.Dir(path))
}

// createFile creates a file that must not exist, and syncs it.
func createFile(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Sync(), file.Close())
}

// syncDir makes changes of a directory survive a power failure.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func removeIfExists(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
