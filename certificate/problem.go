package certificate

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/heraldnode/herald/certificate/rotation"
)

// Problem returns what keeps the node from having a valid certificate, or from renewing it in time, and what an operator can do about
// it (CRT-10). It returns nil while all is well.
func (m *Manager) Problem(now time.Time) error {
	m.mu.Lock()
	s := m.status
	m.mu.Unlock()
	what, state, current := m.config.Kind.what, s.describe(), m.current.Load()
	switch {
	case current == nil:
		return errors.New(join("there is no "+what, state, m.config.Remedy))
	case !rotation.IsValid(current.Leaf, now):
		return errors.New(join(fmt.Sprintf("the %s %s expired at %s", what, s.path, formatTime(current.Leaf.NotAfter)), state, m.config.Remedy))
	case s.err != nil || s.pending != "":
		return errors.New(join(fmt.Sprintf("the %s %s, which expires at %s, is not renewed", what, s.path, formatTime(current.Leaf.NotAfter)),
			state, ""))
	default:
		return nil
	}
}

// describe returns what the manager waits for.
func (s status) describe() string {
	switch {
	case s.err != nil:
		return s.err.Error()
	case s.pending != "" && s.approved:
		return fmt.Sprintf("signing request %s is approved, but not signed", s.pending)
	case s.pending != "":
		return fmt.Sprintf("signing request %s waits for approval (kubectl certificate approve %s)", s.pending, s.pending)
	default:
		return ""
	}
}

func join(text, state, remedy string) string {
	if state != "" {
		text += ": " + state
	}
	if remedy != "" {
		text += "; " + remedy
	}
	return text
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// equalKeys reports whether the certificate is for the key.
func equalKeys(leaf *x509.Certificate, key crypto.Signer) bool {
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	return err == nil && bytes.Equal(public, leaf.RawSubjectPublicKeyInfo)
}
