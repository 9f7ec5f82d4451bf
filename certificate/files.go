package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"github.com/heraldnode/herald/internal/permission"
)

// Files is a certificate and its key in files that others renew. They are read again at the first handshake after a change; a pair that
// cannot be used keeps the last good one (SRV-3). It is safe for concurrent use.
type Files struct {
	certFile, keyFile string
	pair              *reloaded[*tls.Certificate]
}

// NewFiles returns the certificate in these PEM files. A nil logger discards messages.
func NewFiles(certFile, keyFile string, logger *slog.Logger) *Files {
	f := &Files{certFile: certFile, keyFile: keyFile}
	f.pair = newReloaded([]string{certFile, keyFile}, f.parse, logger)
	return f
}

func (f *Files) parse(contents [][]byte) (*tls.Certificate, error) {
	if err := permission.New("read the server's private key").CheckSecret(f.keyFile); err != nil {
		return nil, err
	}
	pair, err := newPair(contents[0], contents[1])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", f.certFile, f.keyFile, err)
	}
	return pair, nil
}

// GetCertificate implements Serving.
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, ok, err := f.pair.get()
	if !ok {
		return nil, fmt.Errorf("no serving certificate: %w", err)
	}
	return pair, nil
}

// Problem returns what an operator should know: the files of now cannot be used, or the certificate has expired.
func (f *Files) Problem(now time.Time) error {
	pair, ok, err := f.pair.get()
	if err == nil && ok && now.After(pair.Leaf.NotAfter) {
		err = fmt.Errorf("the serving certificate %s expired at %s: replace it and its key", f.certFile, formatTime(pair.Leaf.NotAfter))
	}
	return err
}

// CAFile is a bundle of certificate authorities in a PEM file. It is read again when it is asked for after a change; a bundle that
// cannot be used keeps the last good one. It is safe for concurrent use.
type CAFile struct {
	path string
	pool *reloaded[*x509.CertPool]
}

// NewCAFile returns the authorities in the file. A nil logger discards messages.
func NewCAFile(path string, logger *slog.Logger) *CAFile {
	f := &CAFile{path: path}
	f.pool = newReloaded([]string{path}, f.parse, logger)
	return f
}

func (f *CAFile) parse(contents [][]byte) (*x509.CertPool, error) {
	if err := permission.New("authenticate as anybody").CheckFile(f.path); err != nil {
		return nil, err
	}
	authorities, err := certutil.ParseCertsPEM(contents[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	pool := x509.NewCertPool()
	for _, authority := range authorities {
		pool.AddCert(authority)
	}
	return pool, nil
}

// Current implements CAPool. It returns an empty pool, which verifies nobody, until the file could be read.
func (f *CAFile) Current() *x509.CertPool {
	if pool, ok, _ := f.pool.get(); ok {
		return pool
	}
	return x509.NewCertPool()
}

// Problem returns why the file of now cannot be used, or nil.
func (f *CAFile) Problem() error {
	_, _, err := f.pool.get()
	return err
}

// newPair returns a certificate with its parsed leaf.
func newPair(certPEM, keyPEM []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	if pair.Leaf == nil {
		return nil, errors.New("the certificate cannot be parsed")
	}
	return &pair, nil
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
