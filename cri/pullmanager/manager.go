package pullmanager

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/internal/image"
)

// Config configures a Manager.
type Config struct {
	// Dir is the absolute path of the directory for the files, the kubelet's image_manager. It is created with the first pull.
	// Required.
	Dir string
	// FormerDir contains records of an earlier configuration, which still count. Default: none.
	FormerDir string
	// Policy defaults to NeverVerifyPreloadedImages.
	Policy Policy
	// Allowlist holds the patterns of NeverVerifyAllowlistedImages, see IsPattern.
	Allowlist []string
	// Logger receives errors that are not returned to a caller. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
}

// Manager records pulls and decides who may use an image. It is safe for concurrent use.
type Manager struct {
	store        store
	verification verification
	logger       *slog.Logger

	// sem has capacity 1 and is held during file operations: a channel instead of a mutex, because it is held across I/O. It
	// guards the files and the fields below. Methods that need it end in Locked.
	sem      chan struct{}
	pulls    map[string]*imagePulls // by image name as written
	prunedAt time.Time
}

// imagePulls are the pulls of an image that are in progress.
type imagePulls struct {
	name  image.Name
	count int
	// unresolved reports that the result of one is unknown, so that the intent must stay.
	unresolved bool
}

// New returns a Manager. It performs no I/O.
func New(config Config) (*Manager, error) {
	var errs []error
	if !filepath.IsAbs(config.Dir) {
		errs = append(errs, errors.New("pullmanager.Config: Dir must be an absolute path"))
	}
	verification, err := newVerification(cmp.Or(config.Policy, NeverVerifyPreloadedImages), config.Allowlist)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return &Manager{
		store: store{config.Dir, config.FormerDir}, verification: verification, logger: cmp.Or(config.Logger, slog.New(slog.DiscardHandler)),
		sem: make(chan struct{}, 1), pulls: map[string]*imagePulls{},
	}, nil
}

// lock returns the function that unlocks.
func (m *Manager) lock() (unlock func()) {
	m.sem <- struct{}{}
	return func() { <-m.sem }
}

// Hash returns the hash of a credential, as the kubelet computes it.
func Hash(username, password, email string) string {
	content, err := json.Marshal(struct {
		Username string `json:"username,omitempty"`
		Password string `json:"password,omitempty"`
		Email    string `json:"email,omitempty"`
	}{username, password, email})
	if err != nil {
		return "" // matches nothing
	}
	hash := sha256.Sum256(content)
	return hex.EncodeToString(hash[:])
}

// Decision is the result of Check, the kubelet's label of kubelet_imagemanager_image_mustpull_checks_total.
type Decision string

// Decisions. The pod may use the image for the first two.
const (
	AllowedByPolicy  Decision = "credentialPolicyAllowed"
	AllowedByRecord  Decision = "credentialRecordFound"
	MustAuthenticate Decision = "mustAuthenticate"
	CheckFailed      Decision = "error"
)

// IsAllowed reports whether the pod may use the image without a pull.
func (d Decision) IsAllowed() bool { return d == AllowedByPolicy || d == AllowedByRecord }

// Check decides whether a pod may use an image that the node has, without a pull (IMG-14). ref is the image's ID. secrets returns
// the pod's credentials for the image's registry; it is called only if they matter.
func (m *Manager) Check(name image.Name, ref string, secrets func() []Secret) Decision {
	found, isPreloaded, err := m.load(name, ref)
	if err != nil {
		m.logger.Error("Failed to read image pull records", "image", name.String(), "err", err)
		return CheckFailed
	}
	if m.verification.exempts(name, isPreloaded) {
		return AllowedByPolicy
	}
	if found == nil {
		return MustAuthenticate
	}
	access := found.CredentialMapping[name.Untagged()]
	switch {
	case access.NodePodsAccessible:
		return AllowedByRecord
	case len(access.KubernetesSecrets) == 0:
		return MustAuthenticate
	}
	isMatch, unrecorded := access.matches(secrets())
	if unrecorded != nil {
		m.addSecret(name, ref, *unrecorded)
	}
	if isMatch {
		return AllowedByRecord
	}
	return MustAuthenticate
}

// load reads what is known of the image. It is preloaded if it has no record and no pull can have created it.
func (m *Manager) load(name image.Name, ref string) (found *record, isPreloaded bool, err error) {
	defer m.lock()()
	if found, err = m.store.record(ref); err != nil || found != nil {
		return found, false, err
	}
	for _, pull := range m.pulls {
		if mayCreate(pull.name, name) {
			return nil, false, nil
		}
	}
	intents, err := m.store.intents()
	if err != nil {
		return nil, false, err
	}
	for file, pulled := range intents {
		if file == fileName(name.String()) {
			return nil, false, nil
		}
		if parsed, err := image.Parse(pulled); err == nil && mayCreate(parsed, name) {
			return nil, false, nil
		}
	}
	return nil, true, nil
}

// addSecret records that the pod's secret may use the image, so that it still may when the recorded one is rotated.
func (m *Manager) addSecret(name image.Name, ref string, secret Secret) {
	defer m.lock()()
	if err := m.recordLocked(name, ref, access{KubernetesSecrets: []Secret{secret}}); err != nil {
		m.logger.Warn("Failed to record image pull secret", "image", name.String(), "err", err)
	}
}

// recordLocked adds access to the image's record, which it creates if necessary. A record that cannot be read is replaced: access
// that it held must be verified again.
func (m *Manager) recordLocked(name image.Name, ref string, added access) error {
	current, err := m.store.record(ref)
	if err != nil {
		m.logger.Warn("Failed to read image pull record, replacing it", "image", name.String(), "err", err)
	}
	isNew := current == nil
	if isNew {
		current = &record{ImageRef: ref}
	}
	merged, changed := current.merge(name.Untagged(), added)
	// The time of a pull counts even if it adds nothing: Prune spares what is newer than its list.
	if isPull := added.NodePodsAccessible || len(added.KubernetesSecrets) > 0; !changed && !isNew && !isPull {
		return nil
	}
	merged.LastUpdatedTime = metav1.Now()
	return m.store.writeRecord(merged)
}

// Pull is a pull in progress. The caller calls exactly one of Succeed, Fail and Abandon.
type Pull struct {
	manager *Manager
	name    image.Name
	present string
}

// Begin records the intent to pull the image. present is the ID of the image that the node has under this name, or "".
func (m *Manager) Begin(name image.Name, present string) (*Pull, error) {
	defer m.lock()()
	if err := m.beginLocked(name, present); err != nil {
		return nil, fmt.Errorf("record intent to pull image %s: %w", name, err)
	}
	return &Pull{manager: m, name: name, present: present}, nil
}

func (m *Manager) beginLocked(name image.Name, present string) error {
	pulls := m.pulls[name.String()]
	if pulls != nil {
		pulls.count++
		return nil
	}
	isLeft, err := m.store.hasIntent(name.String())
	if err != nil {
		return err
	}
	if isLeft && present != "" { // an earlier pull may have created the image (IMG-13)
		if err := m.recordLocked(name, present, access{}); err != nil {
			return err
		}
	}
	if !isLeft {
		if err := m.store.writeIntent(name.String()); err != nil {
			return err
		}
	}
	m.pulls[name.String()] = &imagePulls{name: name, count: 1}
	return nil
}

// Succeed records that the image was pulled: with the secret, or without a credential if it is nil. Every pod may use the image
// then.
func (p *Pull) Succeed(ref string, secret *Secret) {
	added := access{NodePodsAccessible: true}
	if secret != nil {
		added = access{KubernetesSecrets: []Secret{*secret}}
	}
	p.end(ref, added, true)
}

// Fail records that the pull failed. ref is the ID of the image that the node has under this name now, or "". One that appeared
// during the pull may come from it, so its credentials must be verified.
func (p *Pull) Fail(ref string) {
	if ref == p.present {
		ref = ""
	}
	p.end(ref, access{}, true)
}

// Abandon records that the result of the pull is unknown. The intent stays until a later pull of the image has a result.
func (p *Pull) Abandon() { p.end("", access{}, false) }

// end writes the record before it removes the intent, so that one of them exists at any time.
func (p *Pull) end(ref string, added access, resolved bool) {
	m := p.manager
	defer m.lock()()
	if ref != "" {
		if err := m.recordLocked(p.name, ref, added); err != nil {
			m.logger.Error("Failed to write image pull record", "image", p.name.String(), "err", err)
			resolved = false
		}
	}
	pulls := m.pulls[p.name.String()]
	pulls.unresolved = pulls.unresolved || !resolved
	if pulls.count--; pulls.count > 0 {
		return
	}
	delete(m.pulls, p.name.String())
	if pulls.unresolved {
		return
	}
	if err := m.store.removeIntent(p.name.String()); err != nil {
		m.logger.Warn("Failed to remove image pull intent", "image", p.name.String(), "err", err)
	}
}

// pruneInterval is the time between two lists of all images.
const pruneInterval = time.Hour

// Prune removes the records of images that the node no longer has (IMG-17). list returns the IDs of all images. It is called at
// most once an hour, and only if there are records.
func (m *Manager) Prune(list func() ([]string, error)) error {
	if isDue, err := m.hasToPrune(); err != nil || !isDue {
		return err
	}
	return m.PruneNow(list)
}

// PruneNow is like Prune, but does not wait for an hour to pass. The list must be complete: an image without a record counts as
// preloaded (BUG-131).
func (m *Manager) PruneNow(list func() ([]string, error)) error {
	before := time.Now().Truncate(time.Second) // records have whole seconds
	refs, err := list()
	if err != nil {
		return fmt.Errorf("prune image pull records: %w", err)
	}
	defer m.lock()()
	records, err := m.store.records()
	errs := []error{err}
	for _, found := range records {
		if found.LastUpdatedTime.Time.Before(before) && !slices.Contains(refs, found.ImageRef) {
			errs = append(errs, m.store.removeRecord(found.ImageRef))
		}
	}
	m.prunedAt = time.Now()
	return errors.Join(errs...)
}

func (m *Manager) hasToPrune() (bool, error) {
	defer m.lock()()
	if time.Since(m.prunedAt) < pruneInterval {
		return false, nil
	}
	records, err := m.store.records()
	return len(records) > 0, err
}
