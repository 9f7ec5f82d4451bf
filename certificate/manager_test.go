package certificate_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/heraldnode/herald/certificate"
	"github.com/heraldnode/herald/certificate/rotation"
)

// node is a node with a manager that can be stopped and started again.
type node struct {
	*cluster
	dir      string
	config   certificate.Config
	manager  *certificate.Manager
	changes  atomic.Int32
	stop     context.CancelFunc
	running  sync.WaitGroup
	withCert atomic.Int32 // connections with the node's own certificate
}

// newNode returns a node with a client certificate manager that is not started.
func newNode(t *testing.T, c *cluster, dir string) *node {
	t.Helper()
	n := &node{cluster: c, dir: dir}
	n.config = certificate.Config{
		Kind: certificate.Client(), Dir: dir, Renew: true, Remedy: "renew it",
		Template: func() (rotation.Template, bool) { return rotation.ForClient("n1"), true },
		OnChange: func(*tls.Certificate) { n.changes.Add(1) },
		Connect: func(valid bool) (certificate.API, error) {
			if valid {
				n.withCert.Add(1)
			}
			return c, nil
		},
	}
	return n
}

func (n *node) start(t *testing.T) {
	t.Helper()
	var err error
	if n.manager, err = certificate.NewManager(n.config); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, n.stop = context.WithCancel(t.Context())
	n.running.Go(func() { _ = n.manager.Run(ctx) })
	synctest.Wait()
}

func (n *node) restart(t *testing.T) {
	t.Helper()
	n.shutdown()
	n.start(t)
}

func (n *node) shutdown() {
	n.stop()
	n.running.Wait()
}

// leaf returns the current certificate, nil if there is none.
func (n *node) leaf() *x509.Certificate {
	if pair := n.manager.Current(); pair != nil {
		return pair.Leaf
	}
	return nil
}

// inBubble runs the test with virtual time, a cluster and a node.
func inBubble(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pki")
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newCluster(t), dir)
		test(t, n)
		n.shutdown()
	})
}

func (n *node) requireRequests(t *testing.T, want int) {
	t.Helper()
	if got := n.names(); len(got) != want {
		t.Fatalf("got %d signing requests %v, want %d", len(got), got, want)
	}
}

// pass lets time pass, and then everything that became due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestCRT3_Request(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.start(t)
		request := n.requests[n.last()]
		if got := request.Spec; got.SignerName != "kubernetes.io/kube-apiserver-client-kubelet" || got.ExpirationSeconds != nil ||
			len(got.Usages) != 2 || got.Usages[0] != certificatesv1.UsageDigitalSignature || got.Usages[1] != certificatesv1.UsageClientAuth {
			t.Errorf("got %+v", got)
		}
		if n.manager.Current() != nil || !strings.Contains(n.manager.Problem(time.Now()).Error(), request.Name) {
			t.Errorf("got %v", n.manager.Problem(time.Now()))
		}
		n.sign(request.Name, time.Hour)
		synctest.Wait()
		leaf := n.leaf()
		if leaf == nil || leaf.Subject.CommonName != "system:node:n1" || len(leaf.Subject.Organization) != 1 ||
			leaf.Subject.Organization[0] != "system:nodes" || len(leaf.DNSNames)+len(leaf.IPAddresses) != 0 {
			t.Fatalf("got %+v", leaf)
		}
		if err := n.manager.Problem(time.Now()); err != nil || n.changes.Load() != 1 {
			t.Errorf("got problem %v, %d changes", err, n.changes.Load())
		}
		select {
		case <-n.manager.Available():
		default:
			t.Error("the certificate is not available")
		}
	})
}

// However long nobody decides, and however often the agent restarts, there is one request.
func TestCRT6_OneRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.start(t)
		for range 30 {
			pass(time.Hour)
			n.manager.Refresh()
		}
		n.restart(t)
		pass(time.Hour)
		n.setDown(errDown)
		pass(time.Hour)
		n.setDown(nil)
		pass(2 * time.Minute)
		n.requireRequests(t, 1)
		n.sign(n.last(), time.Hour)
		synctest.Wait()
		if n.leaf() == nil {
			t.Fatal("no certificate")
		}
		if _, err := os.Stat(filepath.Join(n.dir, "kubelet-client.key.tmp")); !os.IsNotExist(err) {
			t.Errorf("the key of the request is still there: %v", err)
		}
	})
}

// A certificate that was signed while the agent was down is used.
func TestCRT6_SignedWhileDown(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.start(t)
		n.shutdown()
		n.sign(n.last(), time.Hour)
		n.start(t)
		if n.leaf() == nil {
			t.Fatal("no certificate")
		}
		n.requireRequests(t, 1)
	})
}

// A request that the cluster removed is made again with the same key, under the same name.
func TestCRT6_Removed(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.start(t)
		pass(24 * time.Hour)
		n.remove(n.last())
		pass(time.Minute)
		n.requireRequests(t, 2)
		if names := n.names(); names[0] != names[1] {
			t.Errorf("got %v, want the same name", names)
		}
	})
}

// After a refusal, another request follows after a minute, two, four and so on up to an hour, also over a restart.
func TestCRT6_Refused(t *testing.T) {
	for _, kind := range []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		inBubble(t, func(t *testing.T, n *node) {
			n.start(t)
			for i, minutes := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
				n.requireRequests(t, i+1)
				n.refuse(n.last(), kind)
				pass(time.Duration(minutes)*time.Minute - time.Second)
				n.requireRequests(t, i+1)
				if err := n.manager.Problem(time.Now()); err == nil || !strings.Contains(err.Error(), "Test: no; renew it") {
					t.Errorf("got problem %v", err)
				}
				pass(2 * time.Second)
			}
			n.refuse(n.last(), kind)
			synctest.Wait()
			before := len(n.names())
			for range 5 {
				n.restart(t)
				pass(10 * time.Second)
			}
			n.requireRequests(t, before)
			pass(11 * time.Second) // a minute after the refusal, because a new agent does not know of the earlier ones
			n.requireRequests(t, before+1)
			n.sign(n.last(), time.Hour)
			synctest.Wait()
			if n.leaf() == nil {
				t.Error("no certificate")
			}
		})
	}
}

// A certificate is not used if it is for another key, another name, or has expired.
func TestCRT6_Unusable(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.start(t)
		other := newNode(t, n.cluster, filepath.Join(n.dir, "other"))
		other.start(t)
		other.sign(other.last(), time.Hour)
		synctest.Wait()
		foreign := n.requests[n.last()].Status.Certificate
		other.shutdown()
		first := n.names()[0]
		n.change(first, func(request *certificatesv1.CertificateSigningRequest) { request.Status.Certificate = foreign })
		synctest.Wait()
		if err := n.manager.Problem(time.Now()); n.leaf() != nil || err == nil || !strings.Contains(err.Error(), "another key") {
			t.Errorf("got %v, problem %v", n.leaf(), err)
		}
		pass(2 * time.Minute)
		n.sign(n.last(), -time.Minute)
		synctest.Wait()
		if err := n.manager.Problem(time.Now()); n.leaf() != nil || err == nil || !strings.Contains(err.Error(), "expired") {
			t.Errorf("got %v, problem %v", n.leaf(), err)
		}
	})
}

func TestCRT7_Rotation(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		const life = 10 * 24 * time.Hour
		n.auto = life
		n.start(t)
		for i := range 5 {
			first := n.leaf()
			pass(time.Until(rotation.Deadline(first, time.Time{})) - 2*time.Second)
			n.requireRequests(t, i+1)
			pass(4 * time.Second)
			if n.leaf() == first || !n.leaf().NotAfter.After(first.NotAfter) {
				t.Fatal("not rotated at the deadline")
			}
		}
		if n.withCert.Load() != 5 {
			t.Errorf("got %d requests with the node's own certificate, want 5", n.withCert.Load())
		}
		files, _ := filepath.Glob(filepath.Join(n.dir, "kubelet-client-2*.pem"))
		if len(files) != 2 {
			t.Errorf("got %v, want the current one and its predecessor (CRT-16)", files)
		}
	})
}

// A signer that sets the start of certificates back is not asked for one after the other.
func TestCRT7_Backdated(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.auto, n.backdate = time.Minute, 5*time.Minute
		n.start(t)
		pass(40 * time.Second)
		n.requireRequests(t, 1)
		pass(15 * time.Second)
		n.requireRequests(t, 2)
	})
}

// The API server is away from before the deadline until after the end. The certificate stays the current one, and is replaced when the
// server is back.
func TestCRT9_ExpiredWhileServerAway(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.auto = 10 * time.Hour
		n.start(t)
		first := n.leaf()
		n.setDown(errDown)
		pass(9*time.Hour + time.Minute)
		if err := n.manager.Problem(time.Now()); err == nil || !strings.Contains(err.Error(), "is not renewed: connection refused") {
			t.Errorf("got problem %v before the end", err)
		}
		pass(time.Hour)
		err := n.manager.Problem(time.Now())
		for _, want := range []string{
			n.dir + "/kubelet-client-current.pem expired at " + first.NotAfter.UTC().Format(time.RFC3339), "connection refused", "; renew it",
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("CRT-10: got problem %v, want %q", err, want)
			}
		}
		if _, err := n.manager.GetCertificate(nil); err == nil || n.leaf() != first {
			t.Error("an expired certificate is served, or forgotten")
		}
		used := n.withCert.Load()
		n.setDown(nil)
		pass(2 * time.Minute)
		if n.leaf() == first || n.withCert.Load() != used || n.manager.Problem(time.Now()) != nil {
			t.Errorf("not replaced with the bootstrap credential; problem: %v", n.manager.Problem(time.Now()))
		}
		n.requireRequests(t, 2)
	})
}

// An agent that starts after the end of its certificate asks for another one.
func TestCRT9_ExpiredWhileOff(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.auto = time.Hour
		n.start(t)
		first := n.leaf()
		n.shutdown()
		time.Sleep(2 * time.Hour)
		n.start(t)
		if n.leaf() == first || n.withCert.Load() != 0 {
			t.Errorf("got the certificate that expired at %v", first.NotAfter)
		}
	})
}

func TestCRT1_Given(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		seed := newNode(t, n.cluster, filepath.Join(n.dir, "seed"))
		seed.auto = time.Hour
		seed.start(t)
		seed.shutdown()
		n.auto = 0
		n.config.Given = seed.manager.Current()
		n.start(t)
		if n.leaf() != n.config.Given.Leaf {
			t.Error("the given certificate is not used")
		}
		n.requireRequests(t, 2) // at once
		n.sign(n.last(), 10*time.Hour)
		synctest.Wait()
		own := n.leaf()
		if own == n.config.Given.Leaf {
			t.Error("the given certificate is not replaced")
		}
		n.restart(t)
		if !n.leaf().Equal(own) {
			t.Error("the given certificate is used although there is another one")
		}
		n.requireRequests(t, 2)
		pass(11 * time.Hour)
		replacement := newNode(t, n.cluster, filepath.Join(n.dir, "replacement"))
		replacement.auto = time.Hour
		replacement.start(t)
		replacement.shutdown()
		n.auto = 0
		n.config.Given = replacement.manager.Current()
		n.restart(t)
		if n.leaf() != n.config.Given.Leaf {
			t.Error("CRT-10: an operator's replacement of an expired certificate is not used")
		}
	})
}

// Without Renew, only a certificate that is missing or has expired is requested.
func TestCRT2_NoRotation(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.config.Renew = false
		n.auto = time.Hour
		n.start(t)
		pass(time.Hour - time.Second)
		n.requireRequests(t, 1)
		pass(2 * time.Second)
		n.requireRequests(t, 2)
	})
}

// The serving certificate follows the node's addresses, one request at a time.
func TestCRT20_Addresses(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		var mu sync.Mutex
		var addresses []string
		setAddresses := func(texts ...string) {
			mu.Lock()
			addresses = texts
			mu.Unlock()
			n.manager.Refresh()
			synctest.Wait()
		}
		n.config.Kind = certificate.Server()
		n.config.Template = func() (rotation.Template, bool) {
			mu.Lock()
			defer mu.Unlock()
			template := rotation.ForClient("n1")
			template.DNSNames = []string{"n1"}
			for _, text := range addresses {
				template.IPs = append(template.IPs, netip.MustParseAddr(text))
			}
			return template, len(template.IPs) > 0
		}
		n.start(t)
		pass(time.Hour)
		n.requireRequests(t, 0) // no address is known
		setAddresses("192.0.2.7")
		n.requireRequests(t, 1)
		if got := n.requests[n.last()].Spec; got.SignerName != "kubernetes.io/kubelet-serving" || got.Usages[1] != certificatesv1.UsageServerAuth {
			t.Errorf("got %+v", got)
		}
		setAddresses("192.0.2.8", "2001:db8::8") // the pending request is for the wrong address
		n.requireRequests(t, 2)
		n.sign(n.last(), time.Hour)
		synctest.Wait()
		if pair, err := n.manager.GetCertificate(nil); err != nil || pair.Leaf.VerifyHostname("2001:db8::8") != nil ||
			pair.Leaf.VerifyHostname("n1") != nil {
			t.Errorf("got %v, %v", pair, err)
		}
		setAddresses("192.0.2.8") // fewer are no reason
		n.requireRequests(t, 2)
		setAddresses("192.0.2.9")
		n.requireRequests(t, 3)
		n.sign(n.last(), time.Hour)
		synctest.Wait()
		n.restart(t) // CRT-22
		n.requireRequests(t, 3)
		if n.leaf().VerifyHostname("192.0.2.9") != nil {
			t.Errorf("got %v", n.leaf().IPAddresses)
		}
	})
}

// A directory that cannot be written does not keep the node from its certificate, and is tried again.
func TestCRT16_UnwritableDirectory(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		write(t, n.dir, nil) // a file
		n.auto = 24 * time.Hour
		n.start(t)
		if n.leaf() == nil {
			t.Fatal("no certificate")
		}
		first := n.leaf()
		if err := os.Remove(n.dir); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		n.restart(t)
		if !n.leaf().Equal(first) {
			t.Error("the certificate was not written later")
		}
		n.requireRequests(t, 1)
	})
}

// A server that asks to wait is not asked again before.
func TestCRT6_RetryAfter(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.setDown(apierrors.NewTooManyRequests("busy", 50))
		n.start(t)
		n.setDown(nil)
		pass(49 * time.Second)
		n.requireRequests(t, 0)
		pass(15 * time.Second)
		n.requireRequests(t, 1)
	})
}
