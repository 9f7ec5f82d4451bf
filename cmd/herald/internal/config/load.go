package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
)

// Load reads a configuration: the file, the drop-ins of the folder in the order of their names, the flags that were given.
// What comes later wins; no file and no folder are "". The error has a line for each mistake.
func Load(file, folder string, flags *Flags) (Config, error) {
	c, said := Default(), map[string]string{}
	files, err := filesOf(file, folder)
	for _, name := range files {
		err = errors.Join(err, c.read(name, said))
	}
	if err == nil {
		c.overlay(flags, said)
		err = c.anchor()
	}
	if err == nil {
		err = c.check(said)
	}
	return c, err
}

func filesOf(file, folder string) ([]string, error) {
	var files []string
	if file != "" {
		files = append(files, file)
	}
	if folder == "" {
		return files, nil
	}
	if info, err := os.Stat(folder); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("read the folder of drop-ins: %s: %w; a file is named with --config", folder, syscall.ENOTDIR)
	}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(entry.Name(), ".") && path != folder // editors' and mounted ConfigMaps' own
		switch {
		case hidden && entry.IsDir():
			return fs.SkipDir
		case !hidden && !entry.IsDir() && filepath.Ext(path) == ".conf":
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the folder of drop-ins: %w; make it, or leave --config-dir out", err)
	}
	return files, nil
}

// MaxBytes is more than any configuration needs.
const MaxBytes = 1 << 20

// read lays a file over the configuration.
func (c *Config) read(file string, said map[string]string) error {
	text, err := ReadFile(file)
	if err != nil {
		return err
	}
	return newDecoder(file, said).decode(text, c)
}

// ReadFile is the text of a file of a size that a configuration may have.
func ReadFile(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("read the configuration: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > MaxBytes {
		return "", fmt.Errorf("read the configuration: %s: want a file of at most %d bytes", file, MaxBytes)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the configuration: %w", err)
	}
	return string(text), nil
}

// overlay takes over the flags that were given.
func (c *Config) overlay(flags *Flags, said map[string]string) {
	given := reflect.ValueOf(&flags.given).Elem()
	for at := range leaves(reflect.ValueOf(c).Elem(), "") {
		if flag := at.Tag.Get("flag"); flag != "" && flags.set.Changed(flag) {
			at.value.Set(valueAt(given, at.path))
			said[at.path] = "--" + flag
		}
	}
}

// anchor makes all paths absolute.
func (c *Config) anchor() error {
	for at := range leaves(reflect.ValueOf(c).Elem(), "") {
		if at.Tag.Get("is") != "path" || at.value.String() == "" {
			continue
		}
		path, err := filepath.Abs(at.value.String())
		if err != nil {
			return fmt.Errorf("%s: %w", at.path, err)
		}
		at.value.SetString(path)
	}
	return nil
}

func valueAt(of reflect.Value, path string) reflect.Value {
	for at := range leaves(of, "") {
		if at.path == path {
			return at.value
		}
	}
	panic("config: no field " + path)
}
