package certificate

import (
	"context"
	"crypto"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	certutil "k8s.io/client-go/util/cert"

	"github.com/heraldnode/herald/certificate/rotation"
)

// API sends signing requests to an API server. Requests are sent once.
type API interface {
	CreateCSR(ctx context.Context, request *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error)
	GetCSR(ctx context.Context, name string) (*certificatesv1.CertificateSigningRequest, error)
	// WatchCSR sends the changes of a request after the version.
	WatchCSR(ctx context.Context, name, resourceVersion string) (watch.Interface, error)
}

// Kind is a kind of certificate.
type Kind struct {
	// Prefix is that of the files in a Store.
	Prefix string
	what   string // in messages
	signer string
	usages []certificatesv1.KeyUsage
}

// Client returns the certificate with which a node authenticates to the API server (CRT-3).
func Client() Kind {
	return Kind{
		Prefix: "kubelet-client", what: "client certificate", signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}
}

// Server returns the certificate with which a node's server answers (CRT-20).
func Server() Kind {
	return Kind{
		Prefix: "kubelet-server", what: "serving certificate", signer: certificatesv1.KubeletServingSignerName,
		usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
	}
}

// requestTimeout bounds one request to the API server, watches aside.
const requestTimeout = 30 * time.Second

// signingRequest is a signing request of this node.
type signingRequest struct {
	api      API
	kind     Kind
	name     string
	key      crypto.Signer
	template rotation.Template
}

// ensure creates the request, or finds the one that an earlier agent created with the same key.
func (r *signingRequest) ensure(ctx context.Context) (*certificatesv1.CertificateSigningRequest, error) {
	text, err := certutil.MakeCSR(r.key, &pkix.Name{
		CommonName: r.template.CommonName, Organization: r.template.Organizations,
	}, r.template.DNSNames, toIPs(r.template.IPs))
	if err != nil {
		return nil, fmt.Errorf("create signing request: %w", err)
	}
	createCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	created, err := r.api.CreateCSR(createCtx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: r.name},
		Spec:       certificatesv1.CertificateSigningRequestSpec{Request: text, SignerName: r.kind.signer, Usages: r.kind.usages},
	})
	if apierrors.IsAlreadyExists(err) {
		return r.get(ctx)
	}
	return created, err
}

func (r *signingRequest) get(ctx context.Context) (*certificatesv1.CertificateSigningRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := r.api.GetCSR(ctx, r.name)
	if err == nil && found.Spec.SignerName != r.kind.signer {
		err = fmt.Errorf("signing request %s has the signer %s, not %s", r.name, found.Spec.SignerName, r.kind.signer)
	}
	return found, err
}

var (
	errRemoved  = errors.New("the signing request was removed")
	errOutdated = errors.New("the node's addresses changed")
)

// next waits for the next version of the request. isCurrent is asked whenever wake is set, and ends the wait when it is false.
func (r *signingRequest) next(
	ctx context.Context, version string, wake <-chan struct{}, isCurrent func() bool,
) (*certificatesv1.CertificateSigningRequest, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.api.WatchCSR(ctx, r.name, version)
	if err != nil {
		return nil, err
	}
	defer stream.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-wake:
			if !isCurrent() {
				return nil, errOutdated
			}
		case event, ok := <-stream.ResultChan():
			object, isRequest := event.Object.(*certificatesv1.CertificateSigningRequest)
			switch {
			case !ok || event.Type == watch.Error:
				return r.getAfterWatch(ctx)
			case event.Type == watch.Deleted:
				return nil, errRemoved
			case isRequest && (event.Type == watch.Added || event.Type == watch.Modified):
				return object, nil
			}
		}
	}
}

// getAfterWatch reads the request after its watch ended, after a pause: a proxy may end each watch at once.
func (r *signingRequest) getAfterWatch(ctx context.Context) (*certificatesv1.CertificateSigningRequest, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(rotation.PauseAfterError(1)):
	}
	return r.get(ctx)
}
