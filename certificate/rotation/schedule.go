package rotation

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"math"
	"time"
)

// At returns when this part of the certificate's life is over, 0 to 1.
func At(leaf *x509.Certificate, part float64) time.Time {
	return leaf.NotBefore.Add(time.Duration(float64(leaf.NotAfter.Sub(leaf.NotBefore)) * part))
}

// Deadline returns when to ask for the certificate's successor: between 70 and 90 % of its life, so that nodes that got their
// certificates together do not renew them together (CRT-7). The moment depends on the certificate alone: a restart does not move it.
//
// The life begins when the node got the certificate, if that is known: signers set its start five minutes back, which could be most of
// the life of a short one.
func Deadline(leaf *x509.Certificate, got time.Time) time.Time {
	const earliest, span = 0.7, 0.2
	start := leaf.NotBefore
	if got.After(start) && got.Before(leaf.NotAfter) {
		start = got
	}
	digest := sha256.Sum256(leaf.Raw)
	share := float64(binary.BigEndian.Uint32(digest[:])) / math.MaxUint32
	return start.Add(time.Duration(float64(leaf.NotAfter.Sub(start)) * (earliest + span*share)))
}

// Facts are what the decision whether to ask depends on.
type Facts struct {
	Now time.Time
	// Leaf is the current certificate, nil if there is none.
	Leaf *x509.Certificate
	// Got is when the node got it, the zero time if that is not known.
	Got      time.Time
	Template Template
	// Renew asks for a successor before the certificate expires. Otherwise only a certificate that is missing, expired or does not fit
	// is replaced.
	Renew bool
	// Replace asks for a successor at once: the certificate was given to the node to get its own (CRT-1).
	Replace bool
}

// Due returns when to ask for a certificate, and why. It is due if the time is not after Facts.Now; a zero time means never.
func Due(f Facts) (at time.Time, why string) {
	switch {
	case f.Leaf == nil:
		return f.Now, "there is none"
	case f.Replace:
		return f.Now, "it is not yet the node's own"
	case f.Template.Missing(f.Leaf) != "":
		return f.Now, f.Template.Missing(f.Leaf)
	case !f.Now.Before(f.Leaf.NotAfter):
		return f.Now, "it expired at " + f.Leaf.NotAfter.UTC().Format(time.RFC3339)
	case f.Renew:
		return Deadline(f.Leaf, f.Got), "it expires at " + f.Leaf.NotAfter.UTC().Format(time.RFC3339)
	default:
		return f.Leaf.NotAfter, "it expires"
	}
}

// IsValid reports whether the certificate can be used for authentication at that time. A certificate that is not yet valid can: the
// clock that decides is the other side's.
func IsValid(leaf *x509.Certificate, now time.Time) bool {
	return leaf != nil && now.Before(leaf.NotAfter)
}

// Pauses after the nth failure in a row.
const (
	firstErrorPause, maxErrorPause     = 2 * time.Second, time.Minute
	firstRefusalPause, maxRefusalPause = time.Minute, time.Hour
)

// PauseAfterError returns how long to wait before a request to the API server is repeated. Nothing was created.
func PauseAfterError(failures int) time.Duration {
	return double(firstErrorPause, maxErrorPause, failures)
}

// PauseAfterRefusal returns how long to wait after a signing request was denied or failed before another one is created: each stays in
// the cluster for an hour (CRT-6).
func PauseAfterRefusal(failures int) time.Duration {
	return double(firstRefusalPause, maxRefusalPause, failures)
}

func double(first, limit time.Duration, failures int) time.Duration {
	pause := first
	for range failures - 1 {
		if pause *= 2; pause >= limit {
			return limit
		}
	}
	return pause
}
