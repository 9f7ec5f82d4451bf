package rotation

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
)

// Name returns the name of the signing request for this key: the same key asks for the same certificate under the same name, so that an
// agent that restarts finds its request instead of adding another (CRT-6).
func Name(signer string, publicKey []byte, t Template) string {
	digest := sha256.New()
	write := func(part string) { fmt.Fprintf(digest, "%d:%s", len(part), part) }
	write(signer)
	write(string(publicKey))
	write(t.CommonName)
	for _, organization := range t.Organizations {
		write("o" + organization)
	}
	for _, name := range t.DNSNames {
		write("n" + name)
	}
	for _, ip := range t.IPs {
		write("a" + ip.String())
	}
	const bytes = 20
	return "node-csr-" + hex.EncodeToString(digest.Sum(nil)[:bytes])
}

// State is what became of a signing request.
type State int

// States of a signing request.
const (
	Pending State = iota // nobody has decided, or it is approved and not yet signed
	Issued
	Refused // denied, or the signer failed
)

// Verdict is the answer to a signing request.
type Verdict struct {
	State State
	// Reason is why it was refused.
	Reason string
	// At is when it was refused, the zero time if the answer does not say.
	At time.Time
}

// Judge reads the answer to a signing request.
func Judge(request *certificatesv1.CertificateSigningRequest) Verdict {
	for i := range request.Status.Conditions {
		condition := &request.Status.Conditions[i]
		isRefusal := condition.Type == certificatesv1.CertificateDenied || condition.Type == certificatesv1.CertificateFailed
		if !isRefusal || condition.Status == v1.ConditionFalse {
			continue
		}
		reason := strings.ToLower(string(condition.Type))
		for _, detail := range []string{condition.Reason, condition.Message} {
			if detail != "" {
				reason += ": " + detail
			}
		}
		return Verdict{Refused, reason, condition.LastUpdateTime.Time}
	}
	if len(request.Status.Certificate) > 0 {
		return Verdict{State: Issued}
	}
	return Verdict{State: Pending}
}

// IsApproved reports whether the request was approved.
func IsApproved(request *certificatesv1.CertificateSigningRequest) bool {
	for i := range request.Status.Conditions {
		if request.Status.Conditions[i].Type == certificatesv1.CertificateApproved {
			return true
		}
	}
	return false
}

// Accept returns why an issued certificate cannot be used, or nil. publicKey is that of the request.
func Accept(leaf *x509.Certificate, publicKey []byte, t Template, now time.Time) error {
	switch {
	case !bytes.Equal(leaf.RawSubjectPublicKeyInfo, publicKey):
		return errors.New("it is for another key")
	case !IsValid(leaf, now):
		return fmt.Errorf("it expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	case t.Missing(leaf) != "":
		return errors.New(t.Missing(leaf))
	default:
		return nil
	}
}
