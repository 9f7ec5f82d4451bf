package pullmanager

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// store reads and writes the files. Callers serialize the calls.
type store struct {
	dir    string
	former string // read and removed from, but not written to; "" for none
}

// dirs returns the directories to read, the current one first.
func (s store) dirs() []string {
	if s.former == "" {
		return []string{s.dir}
	}
	return []string{s.dir, s.former}
}

const (
	pullingDir = "pulling"
	pulledDir  = "pulled"

	filePrefix = "sha256-"
	tempSuffix = ".tmp"

	apiGroup   = "kubelet.config.k8s.io"
	apiVersion = apiGroup + "/v1beta1"
)

// readableVersions have the same fields.
var readableVersions = []string{apiVersion, apiGroup + "/v1alpha1"}

func fileName(key string) string { return fmt.Sprintf("%s%x", filePrefix, sha256.Sum256([]byte(key))) }

// intents returns the images with an intent on disk, by file name. The image is "" if the file cannot be read.
func (s store) intents() (map[string]string, error) {
	images := map[string]string{}
	err := s.forEach(pullingDir, func(name string) {
		var found intent
		if err := s.read(pullingDir, name, "ImagePullIntent", &found.TypeMeta, &found); err != nil {
			found.Image = ""
		}
		images[name] = found.Image
	})
	return images, err
}

func (s store) hasIntent(image string) (bool, error) {
	for _, dir := range s.dirs() {
		_, err := os.Lstat(filepath.Join(dir, pullingDir, fileName(image)))
		if !errors.Is(err, fs.ErrNotExist) {
			return err == nil, err
		}
	}
	return false, nil
}

func (s store) writeIntent(image string) error {
	return s.write(filepath.Join(pullingDir, fileName(image)), intent{TypeMeta: typeMeta("ImagePullIntent"), Image: image})
}

func (s store) removeIntent(image string) error {
	return s.remove(filepath.Join(pullingDir, fileName(image)))
}

// record returns nil if there is no record of the image.
func (s store) record(ref string) (*record, error) {
	var found record
	err := s.read(pulledDir, fileName(ref), "ImagePulledRecord", &found.TypeMeta, &found)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case found.ImageRef != ref:
		return nil, fmt.Errorf("record of image %s is about image %s", ref, found.ImageRef)
	}
	return &found, nil
}

func (s store) writeRecord(r record) error {
	r.TypeMeta = typeMeta("ImagePulledRecord")
	return s.write(filepath.Join(pulledDir, fileName(r.ImageRef)), r)
}

// records returns the records that can be read.
func (s store) records() ([]record, error) {
	var all []record
	err := s.forEach(pulledDir, func(name string) {
		var found record
		if err := s.read(pulledDir, name, "ImagePulledRecord", &found.TypeMeta, &found); err == nil {
			all = append(all, found)
		}
	})
	return all, err
}

func (s store) removeRecord(ref string) error {
	return s.remove(filepath.Join(pulledDir, fileName(ref)))
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: apiVersion}
}

// forEach visits each file name once.
func (s store) forEach(kind string, visit func(name string)) error {
	visited := map[string]bool{}
	for _, dir := range s.dirs() {
		entries, err := os.ReadDir(filepath.Join(dir, kind))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, entry := range entries {
			name := entry.Name()
			isFile := entry.Type().IsRegular() && strings.HasPrefix(name, filePrefix) && !strings.HasSuffix(name, tempSuffix)
			if isFile && !visited[name] {
				visited[name] = true
				visit(name)
			}
		}
	}
	return nil
}

// read decodes a file strictly: a field that is not known may restrict the access.
func (s store) read(dir, name, kind string, meta *metav1.TypeMeta, object any) error {
	var path string
	var content []byte
	var err error
	for _, root := range s.dirs() {
		path = filepath.Join(root, dir, name)
		if content, err = os.ReadFile(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(object); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	if meta.Kind != kind || !slices.Contains(readableVersions, meta.APIVersion) {
		return fmt.Errorf("decode %s: it holds %s %s, not %s %s", path, meta.APIVersion, meta.Kind, apiVersion, kind)
	}
	return nil
}

// write replaces a file atomically and durably.
func (s store) write(name string, object any) (err error) {
	content, err := json.Marshal(object)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, name)
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temporary := path + tempSuffix
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary)
		}
	}()
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDir(dir)
}

func (s store) remove(name string) error {
	var errs []error
	for _, dir := range s.dirs() {
		if err := os.Remove(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
