package certificate_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// cluster is an API server that stores signing requests, with an approver and a signer that do what the test says. It implements
// certificate.API.
type cluster struct {
	t   *testing.T
	ca  *x509.Certificate
	key *ecdsa.PrivateKey

	mu       sync.Mutex // guards all below
	down     error      // of all requests
	created  []string   // names of all requests that were ever created
	requests map[string]*certificatesv1.CertificateSigningRequest
	watches  map[string][]*watch.RaceFreeFakeWatcher
	version  int
	backdate time.Duration
	auto     time.Duration // life of the certificates that are signed at once; 0 signs none
}

var csrResource = schema.GroupResource{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true}
	return &cluster{
		t: t, ca: ca, key: key, requests: map[string]*certificatesv1.CertificateSigningRequest{},
		watches: map[string][]*watch.RaceFreeFakeWatcher{},
	}
}

func (c *cluster) CreateCSR(
	_ context.Context, request *certificatesv1.CertificateSigningRequest,
) (*certificatesv1.CertificateSigningRequest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down != nil {
		return nil, c.down
	}
	if c.requests[request.Name] != nil {
		return nil, apierrors.NewAlreadyExists(csrResource, request.Name)
	}
	stored := request.DeepCopy()
	c.version++
	stored.ResourceVersion = strconv.Itoa(c.version)
	c.requests[stored.Name] = stored
	c.created = append(c.created, stored.Name)
	if c.auto > 0 {
		c.signLocked(stored, c.auto)
	}
	return stored.DeepCopy(), nil
}

func (c *cluster) GetCSR(_ context.Context, name string) (*certificatesv1.CertificateSigningRequest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down != nil {
		return nil, c.down
	}
	if c.requests[name] == nil {
		return nil, apierrors.NewNotFound(csrResource, name)
	}
	return c.requests[name].DeepCopy(), nil
}

func (c *cluster) WatchCSR(_ context.Context, name, version string) (watch.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down != nil {
		return nil, c.down
	}
	stream := watch.NewRaceFreeFake()
	if request := c.requests[name]; request != nil && request.ResourceVersion != version {
		stream.Modify(request.DeepCopy())
	}
	c.watches[name] = append(c.watches[name], stream)
	return stream, nil
}

// change changes a request and tells its watches.
func (c *cluster) change(name string, change func(*certificatesv1.CertificateSigningRequest)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	request := c.requests[name]
	change(request)
	c.version++
	request.ResourceVersion = strconv.Itoa(c.version)
	for _, stream := range c.watches[name] {
		stream.Modify(request.DeepCopy())
	}
}

// setDown makes all requests fail, and ends all watches.
func (c *cluster) setDown(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = err
	for _, streams := range c.watches {
		for _, stream := range streams {
			stream.Stop()
		}
	}
	clear(c.watches)
}

// remove deletes a request, as the cluster's cleaner does.
func (c *cluster) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, stream := range c.watches[name] {
		stream.Delete(c.requests[name])
	}
	delete(c.requests, name)
}

// sign approves and signs a request.
func (c *cluster) sign(name string, life time.Duration) {
	c.change(name, func(request *certificatesv1.CertificateSigningRequest) { c.signLocked(request, life) })
}

func (c *cluster) signLocked(request *certificatesv1.CertificateSigningRequest, life time.Duration) {
	block, _ := pem.Decode(request.Spec.Request)
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		c.t.Error(err)
		return
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		c.t.Error(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: parsed.Subject, DNSNames: parsed.DNSNames, IPAddresses: parsed.IPAddresses,
		NotBefore: time.Now().Add(-c.backdate), NotAfter: time.Now().Add(life),
	}, c.ca, parsed.PublicKey, c.key)
	if err != nil {
		c.t.Error(err)
	}
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: v1.ConditionTrue,
	})
	request.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// refuse denies a request, or marks it as failed.
func (c *cluster) refuse(name string, with certificatesv1.RequestConditionType) {
	c.change(name, func(request *certificatesv1.CertificateSigningRequest) {
		request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: with, Status: v1.ConditionTrue, Reason: "Test", Message: "no", LastUpdateTime: metav1.Now(),
		})
	})
}

// names returns the names of all requests that were ever created.
func (c *cluster) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.created)
}

// last returns the request that was created last.
func (c *cluster) last() string {
	names := c.names()
	if len(names) == 0 {
		c.t.Fatal("no signing request was created")
	}
	return names[len(names)-1]
}

var errDown = errors.New("connection refused")
