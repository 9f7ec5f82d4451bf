package certificate

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/heraldnode/herald/internal/permission"
)

// Store keeps one certificate of a node, its key and its predecessor in a directory, in the kubelet's layout (CRT-15):
//
//	kubelet-client-2026-01-02-03-04-05.pem  leaf, intermediates and key, mode 0600
//	kubelet-client-current.pem              a link to the one in use
//	kubelet-client.key.tmp                  the key of a pending signing request
//
// A reader finds the old or the new certificate at any time, also after a crash (CRT-16). It must not be used concurrently.
type Store struct {
	dir, prefix string
	// step is called after each step that changes the directory, for tests that crash there.
	step func()
}

// NewStore returns a store in the directory, which must be an absolute path, for files with the prefix, like kubelet-client. It touches
// no file.
func NewStore(dir, prefix string) *Store { return &Store{dir: dir, prefix: prefix, step: func() {}} }

// CurrentPath returns the path of the certificate in use, and of its key. The file may not exist yet.
func (s *Store) CurrentPath() string { return s.path("-current.pem") }

// updatedPath is the link before it replaces the current one. The kubelet knows it too.
func (s *Store) updatedPath() string { return s.path("-updated.pem") }

func (s *Store) pendingPath() string { return s.path(".key.tmp") }

func (s *Store) path(suffix string) string { return filepath.Join(s.dir, s.prefix+suffix) }

// permissions checks files with private keys.
var permissions = permission.New("authenticate as this node")

// Load returns the certificate in use and when it was saved. It returns an error that wraps fs.ErrNotExist if there is none.
func (s *Store) Load() (pair *tls.Certificate, savedAt time.Time, err error) {
	_, err = os.Lstat(s.CurrentPath())
	if errors.Is(err, fs.ErrNotExist) {
		// A kubelet that removed the old link crashed before it renamed the new one.
		err = os.Rename(s.updatedPath(), s.CurrentPath())
	}
	files := [2]string{s.CurrentPath(), s.CurrentPath()}
	if errors.Is(err, fs.ErrNotExist) {
		files = [2]string{s.path(".crt"), s.path(".key")}
	}
	if pair, err = loadPair(files[0], files[1]); err != nil {
		return nil, time.Time{}, fmt.Errorf("read certificate: %w", err)
	}
	info, err := os.Stat(files[0])
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read certificate: %w", err)
	}
	return pair, info.ModTime(), nil
}

// loadPair reads a certificate and its key, which may be the same file.
func loadPair(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := readFile(certFile)
	if err != nil {
		return nil, err
	}
	key, err := readFile(keyFile)
	if err == nil {
		err = permissions.CheckSecret(keyFile)
	}
	if err != nil {
		return nil, err
	}
	pair, err := newPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	return pair, nil
}

// Save makes the certificate the one in use and keeps its predecessor. The PEM texts must be those of a pair.
func (s *Store) Save(certPEM, keyPEM []byte, now time.Time) error {
	if err := s.save(certPEM, keyPEM, now); err != nil {
		return fmt.Errorf("save certificate in %s: %w", s.dir, err)
	}
	return nil
}

func (s *Store) save(certPEM, keyPEM []byte, now time.Time) error {
	if err := s.createDir(); err != nil {
		return err
	}
	previous, _ := os.Readlink(s.CurrentPath()) // none, or a plain file that an operator put there
	path, err := s.createPEM(slices.Concat(certPEM, keyPEM), now)
	if err != nil {
		return err
	}
	s.step()
	if err := removeIfExists(s.updatedPath()); err != nil {
		return err
	}
	s.step()
	if err := os.Symlink(path, s.updatedPath()); err != nil {
		return err
	}
	s.step()
	if err := os.Rename(s.updatedPath(), s.CurrentPath()); err != nil {
		return err
	}
	s.step()
	if err := syncDir(s.dir); err != nil {
		return err
	}
	return s.prune(filepath.Base(path), filepath.Base(previous))
}

// createDir creates the directory for its owner only, and rejects one that others can modify.
func (s *Store) createDir() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return permissions.CheckFile(s.dir)
}

// createPEM creates the file of a certificate. Its name has the time; two of the same second differ by a number.
func (s *Store) createPEM(content []byte, now time.Time) (string, error) {
	const attempts = 100
	base := s.path("-" + now.Format("2006-01-02-15-04-05"))
	path := base + ".pem"
	for i := 2; ; i++ {
		err := createFile(path, content)
		if err == nil || !errors.Is(err, fs.ErrExist) || i > attempts {
			return path, err
		}
		path = fmt.Sprintf("%s-%d.pem", base, i)
	}
}

var pemSuffix = regexp.MustCompile(`^-[0-9]{4}(-[0-9]{2}){5}(-[0-9]+)?\.pem$`)

// prune removes the files of all certificates but these.
func (s *Store) prune(keep ...string) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		suffix, isOurs := strings.CutPrefix(entry.Name(), s.prefix)
		if !isOurs || !pemSuffix.MatchString(suffix) || slices.Contains(keep, entry.Name()) || !entry.Type().IsRegular() {
			continue
		}
		errs = append(errs, removeIfExists(filepath.Join(s.dir, entry.Name())))
		s.step()
	}
	return errors.Join(errs...)
}

// newKey returns a key for a signing request.
func newKey() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// LoadPending returns the key of a pending signing request. It returns an error that wraps fs.ErrNotExist if there is none.
func (s *Store) LoadPending() (crypto.Signer, error) {
	content, err := readFile(s.pendingPath())
	if err == nil {
		err = permissions.CheckSecret(s.pendingPath())
	}
	if err != nil {
		return nil, fmt.Errorf("read key of the pending signing request: %w", err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(content)
	if err != nil {
		return nil, fmt.Errorf("read key of the pending signing request: %s: %w", s.pendingPath(), err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("read key of the pending signing request: %s has no key that can sign", s.pendingPath())
	}
	return key, nil
}

// SavePending keeps the key of a signing request, so that its certificate can be used after a restart.
func (s *Store) SavePending(key crypto.Signer) error {
	content, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err == nil {
		err = s.createDir()
	}
	if err == nil {
		err = replaceFile(s.pendingPath(), content)
	}
	s.step()
	if err != nil {
		return fmt.Errorf("save key of the signing request in %s: %w", s.dir, err)
	}
	return nil
}

// RemovePending removes the key of a signing request that is over.
func (s *Store) RemovePending() error {
	defer s.step()
	return removeIfExists(s.pendingPath())
}
