package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
)

// pki writes the files that the servers read. The first error sticks and is looked at once.
type pki struct {
	dir string
	err error
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

// file writes one file that only its owner may read, and returns its path.
func (p *pki) file(name string, content []byte) string {
	path := p.path(name)
	if p.err != nil {
		return path
	}
	p.err = os.MkdirAll(p.dir, 0o700)
	if p.err == nil {
		p.err = os.WriteFile(path, content, 0o600)
	}
	if p.err != nil {
		p.err = fmt.Errorf("write the servers' certificates: %w", p.err)
	}
	return path
}

// pair writes a certificate and its key.
func (p *pki) pair(name string, pair keyPair) (cert, key string) {
	return p.file(name+".crt", pair.cert), p.file(name+".key", pair.key)
}
