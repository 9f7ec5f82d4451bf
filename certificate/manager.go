package certificate

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/heraldnode/herald/certificate/rotation"
	"github.com/heraldnode/herald/internal/wakeup"
)

// checkPeriod is how often the clock is looked at, at least: it may be set forward, or stand still while the machine is suspended.
const checkPeriod = time.Minute

// Config configures a Manager. Kind, Dir, Template and Connect are required.
type Config struct {
	Kind Kind
	// Dir is the directory of the certificates, an absolute path. It is created with mode 0700.
	Dir string
	// Template returns what a certificate must have, of now, and false while that is not known. It must not block.
	Template func() (rotation.Template, bool)
	// Connect returns the API with the best credential of now: the node's own certificate if valid is true, or what the node has to get
	// one.
	Connect func(valid bool) (API, error)
	// Given is a certificate that the node has from elsewhere. It is used until there is another one, which is requested at once
	// (CRT-1). Default: none.
	Given *tls.Certificate
	// Renew requests a successor before the certificate expires. Otherwise one is requested only if there is none that is valid.
	Renew bool
	// OnChange is called after the certificate changed, with the one before, which is nil the first time. Default: none.
	OnChange func(before *tls.Certificate)
	// Remedy completes the description of a problem: what an operator can do about a certificate that expired. Default: none.
	Remedy string
	// Logger receives messages, Metrics the kubelet's metrics. Default: none.
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// Manager keeps a certificate valid: it requests one from the API server, waits for as long as its approval takes, and requests the
// next one in time. It has at most one signing request at a time, whose key and name survive a restart (CRT-6). All methods but Run are
// safe for concurrent use.
type Manager struct {
	config  Config
	store   *Store
	metrics *metrics
	wake    wakeup.Signal
	// available is closed when there is a certificate for the first time.
	available chan struct{}
	current   atomic.Pointer[tls.Certificate]

	mu     sync.Mutex // guards status
	status status

	requester // only for Run
}

// status is what the manager does, for people.
type status struct {
	pending  string // name of the signing request that waits
	approved bool   // it waits for the signature only
	err      error  // of the last attempt, nil after a success
	path     string // of the current certificate
}

// requester is the state of requests.
type requester struct {
	isGiven  bool          // the current certificate is not the node's own
	gotAt    time.Time     // when the node got its own
	pending  crypto.Signer // key of the signing request, nil if there is none
	isSaved  bool          // the pending key is on disk
	refused  bool          // the pending request was refused
	retryAt  time.Time
	errs     int // failed attempts in a row without an answer
	refusals int // refused requests in a row
	unsaved  *issued
}

// issued is a certificate that could not be written yet.
type issued struct{ cert, key []byte }

// NewManager returns a manager. It reads the current certificate, and changes nothing.
func NewManager(config Config) (*Manager, error) {
	if config.Kind.Prefix == "" || config.Dir == "" || config.Template == nil || config.Connect == nil {
		return nil, errors.New("certificate.Config: Kind, Dir, Template and Connect are required")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	config.Logger = config.Logger.With("certificate", config.Kind.Prefix)
	if config.OnChange == nil {
		config.OnChange = func(*tls.Certificate) {}
	}
	m := &Manager{
		config: config, store: NewStore(config.Dir, config.Kind.Prefix), wake: wakeup.New(), available: make(chan struct{}),
	}
	var err error
	if m.metrics, err = newMetrics(config.Kind, m, config.Metrics); err != nil {
		return nil, err
	}
	m.load(time.Now())
	return m, nil
}

// load chooses between the certificate on disk and the given one: the stored one unless it has expired and the given one has not.
func (m *Manager) load(now time.Time) {
	stored, savedAt, err := m.store.Load()
	if err != nil && !isNotExist(err) {
		m.config.Logger.Error("Failed to read certificate", "err", err)
		m.status.err = err
	}
	m.status.path = m.store.CurrentPath()
	given := m.config.Given
	switch {
	case stored != nil && (given == nil || rotation.IsValid(stored.Leaf, now) || !given.Leaf.NotAfter.After(stored.Leaf.NotAfter)):
		m.gotAt = savedAt
		m.use(stored)
	case given != nil:
		m.isGiven = true
		m.use(given)
	}
}

func (m *Manager) use(pair *tls.Certificate) {
	if m.current.Swap(pair) == nil {
		close(m.available)
	}
}

// Current returns the certificate, or nil if there is none yet. It may have expired: whether it is accepted is up to the other side's
// clock.
func (m *Manager) Current() *tls.Certificate { return m.current.Load() }

// Available returns a channel that is closed when there is a certificate.
func (m *Manager) Available() <-chan struct{} { return m.available }

// GetCertificate implements Serving. It returns an error unless there is a certificate that has not expired.
func (m *Manager) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair := m.current.Load()
	if pair == nil || !rotation.IsValid(pair.Leaf, time.Now()) {
		return nil, fmt.Errorf("no valid %s", m.config.Kind.what)
	}
	return pair, nil
}

// Expires returns when the certificate ends, or the zero time if there is none.
func (m *Manager) Expires() time.Time {
	if pair := m.current.Load(); pair != nil {
		return pair.Leaf.NotAfter
	}
	return time.Time{}
}

// Refresh makes the manager look at the template again. It never blocks.
func (m *Manager) Refresh() { m.wake.Set() }

// Run keeps the certificate valid until ctx ends. It must be called at most once.
func (m *Manager) Run(ctx context.Context) error {
	m.loadPending()
	for ctx.Err() == nil {
		pause := m.turn(ctx)
		if pause <= 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-time.After(min(pause, checkPeriod)):
		}
	}
	return nil
}

// loadPending finds the key of a signing request that an earlier agent made.
func (m *Manager) loadPending() {
	key, err := m.store.LoadPending()
	if err != nil {
		if !isNotExist(err) {
			m.config.Logger.Warn("A pending signing request is lost", "err", err)
		}
		return
	}
	m.pending, m.isSaved = key, true
	if current := m.current.Load(); current != nil && equalKeys(current.Leaf, key) {
		m.dropPending() // its certificate was saved
	}
}

// turn does what is due and returns when to look again.
func (m *Manager) turn(ctx context.Context) time.Duration {
	now := time.Now()
	m.saveIssued(now)
	template, isKnown := m.config.Template()
	if !isKnown {
		return checkPeriod
	}
	facts := rotation.Facts{Now: now, Template: template, Renew: m.config.Renew, Replace: m.isGiven, Got: m.gotAt}
	if current := m.current.Load(); current != nil {
		facts.Leaf = current.Leaf
	}
	at, why := rotation.Due(facts)
	if now.Before(at) {
		m.setStatus(func(s *status) { s.pending, s.err = "", nil })
		return at.Sub(now)
	}
	if now.Before(m.retryAt) {
		return m.retryAt.Sub(now)
	}
	err := m.request(ctx, template, why)
	if ctx.Err() != nil || err == nil || errors.Is(err, errOutdated) {
		return 0
	}
	m.fail(err, time.Now())
	return 0
}

// refusal is the answer to a signing request that was denied, that failed, or whose certificate cannot be used.
type refusal struct {
	name, reason string
	at           time.Time
}

func (r *refusal) Error() string { return fmt.Sprintf("signing request %s: %s", r.name, r.reason) }

// request makes a signing request, or finds the one that is pending, and waits for its certificate.
func (m *Manager) request(ctx context.Context, template rotation.Template, why string) error {
	if err := m.prepareKey(why); err != nil {
		return err
	}
	publicKey, err := x509.MarshalPKIXPublicKey(m.pending.Public())
	if err != nil {
		return err
	}
	api, err := m.config.Connect(m.isUsable(time.Now()))
	if err != nil {
		return err
	}
	name := rotation.Name(m.config.Kind.signer, publicKey, template)
	pending := &signingRequest{api, m.config.Kind, name, m.pending, template}
	isCurrent := func() bool {
		wanted, isKnown := m.config.Template()
		return isKnown && rotation.Name(m.config.Kind.signer, publicKey, wanted) == name
	}
	object, err := pending.ensure(ctx)
	for err == nil {
		verdict := rotation.Judge(object)
		m.setStatus(func(s *status) { s.pending, s.approved, s.err = name, rotation.IsApproved(object), nil })
		switch verdict.State {
		case rotation.Issued:
			return m.install(object, publicKey, template)
		case rotation.Refused:
			return &refusal{name, verdict.Reason, verdict.At}
		default:
			m.errs = 0
			object, err = pending.next(ctx, object.ResourceVersion, m.wake, isCurrent)
		}
	}
	return err
}

// isUsable reports whether the node can authenticate with its own certificate.
func (m *Manager) isUsable(now time.Time) bool {
	current := m.current.Load()
	return current != nil && rotation.IsValid(current.Leaf, now)
}

// prepareKey makes a key unless there is one whose request was not refused. A key that cannot be written is used all the same.
func (m *Manager) prepareKey(why string) (err error) {
	if m.pending == nil || m.refused {
		key, err := newKey()
		if err != nil {
			return fmt.Errorf("create key: %w", err)
		}
		m.config.Logger.Info("Requesting certificate", "reason", why)
		m.pending, m.isSaved, m.refused = key, false, false
	}
	if m.isSaved {
		return nil
	}
	if err := m.store.SavePending(m.pending); err != nil {
		m.config.Logger.Error("Failed to save the key of a signing request; a restart will request another certificate", "err", err)
	}
	m.isSaved = true
	return nil
}

// install makes the certificate of a request the current one.
func (m *Manager) install(object *certificatesv1.CertificateSigningRequest, publicKey []byte, template rotation.Template) error {
	now := time.Now()
	reject := func(err error) error {
		return &refusal{object.Name, "its certificate cannot be used: " + err.Error(), now}
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(m.pending)
	if err != nil {
		return err
	}
	chain, err := certutil.ParseCertsPEM(object.Status.Certificate)
	if err != nil {
		return reject(err)
	}
	if err := rotation.Accept(chain[0], publicKey, template, now); err != nil {
		return reject(err)
	}
	pair, err := newPair(object.Status.Certificate, key)
	if err != nil {
		return reject(err)
	}
	before := m.current.Load()
	if before != nil {
		m.metrics.rotated(now.Sub(before.Leaf.NotBefore))
	}
	m.unsaved = &issued{object.Status.Certificate, key}
	m.saveIssued(now)
	m.isGiven, m.gotAt, m.errs, m.refusals, m.retryAt = false, now, 0, 0, time.Time{}
	m.use(pair)
	m.setStatus(func(s *status) { s.pending, s.err = "", nil })
	m.config.Logger.Info("Got certificate", "request", object.Name, "expires", pair.Leaf.NotAfter, "file", m.store.CurrentPath())
	m.config.OnChange(before)
	return nil
}

// saveIssued writes a new certificate. The key of its request stays on disk until that is done.
func (m *Manager) saveIssued(now time.Time) {
	if m.unsaved == nil {
		return
	}
	if err := m.store.Save(m.unsaved.cert, m.unsaved.key, now); err != nil {
		m.config.Logger.Error("Failed to save certificate; it is used until the agent stops", "err", err)
		return
	}
	m.unsaved = nil
	m.dropPending()
}

func (m *Manager) dropPending() {
	m.pending, m.isSaved, m.refused = nil, false, false
	if err := m.store.RemovePending(); err != nil {
		m.config.Logger.Warn("Failed to remove the key of a finished signing request", "err", err)
	}
}

// fail decides when to try again.
func (m *Manager) fail(err error, now time.Time) {
	m.metrics.failed()
	refused := (*refusal)(nil)
	switch {
	case errors.As(err, &refused):
		m.refusals++
		m.refused = true
		at := refused.at
		if at.IsZero() || at.After(now) {
			at = now
		}
		m.retryAt = at.Add(rotation.PauseAfterRefusal(m.refusals))
	default:
		m.errs++
		pause := rotation.PauseAfterError(m.errs)
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			pause = max(pause, min(time.Duration(seconds)*time.Second, rotation.PauseAfterRefusal(1)))
		}
		const jitter = 5                                  // a fifth
		m.retryAt = now.Add(pause + rand.N(pause/jitter)) //nolint:gosec // spreads load, not security-relevant
	}
	before := m.setStatus(func(s *status) { s.pending, s.err = "", err })
	if before.err == nil || before.err.Error() != err.Error() {
		m.config.Logger.Warn("Failed to get certificate", "err", m.Problem(now), "nextTry", m.retryAt)
	}
}

// setStatus changes the status and returns the one before.
func (m *Manager) setStatus(change func(*status)) status {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.status
	change(&m.status)
	return before
}
