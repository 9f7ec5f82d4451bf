package rotation_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/certificate/rotation"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newLeaf returns a client certificate of n1 that lives for 100 hours.
func newLeaf(change func(*x509.Certificate)) *x509.Certificate {
	leaf := &x509.Certificate{
		Raw: []byte("a"), Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
		NotBefore: start, NotAfter: start.Add(100 * time.Hour),
	}
	if change != nil {
		change(leaf)
	}
	return leaf
}

func TestCRT7_Due(t *testing.T) {
	client := rotation.ForClient("n1")
	serving, _ := rotation.ForServing("n1", []v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: "192.0.2.7"}, {Type: v1.NodeHostName, Address: "n1"},
	})
	named := func(leaf *x509.Certificate) {
		leaf.DNSNames, leaf.IPAddresses = []string{"N1", "more"}, []net.IP{net.ParseIP("192.0.2.7"), net.ParseIP("192.0.2.9")}
	}
	now := start.Add(time.Hour)
	for name, test := range map[string]struct {
		facts rotation.Facts
		want  time.Time // zero: the deadline
		why   string
	}{
		"none":             {rotation.Facts{Template: client}, now, "there is none"},
		"fresh":            {rotation.Facts{Leaf: newLeaf(nil), Template: client, Renew: true}, time.Time{}, "expires at"},
		"not renewed":      {rotation.Facts{Leaf: newLeaf(nil), Template: client}, start.Add(100 * time.Hour), "expires"},
		"given":            {rotation.Facts{Leaf: newLeaf(nil), Template: client, Renew: true, Replace: true}, now, "not yet the node's own"},
		"all names":        {rotation.Facts{Leaf: newLeaf(named), Template: serving, Renew: true}, time.Time{}, ""},
		"no names":         {rotation.Facts{Leaf: newLeaf(nil), Template: serving, Renew: true}, now, "lacks the name n1"},
		"other node":       {rotation.Facts{Leaf: newLeaf(nil), Template: rotation.ForClient("n2")}, now, "common name"},
		"no group":         {rotation.Facts{Leaf: newLeaf(func(l *x509.Certificate) { l.Subject.Organization = nil }), Template: client}, now, "organization"},
		"expired":          {rotation.Facts{Leaf: newLeaf(func(l *x509.Certificate) { l.NotAfter = now }), Template: client}, now, "expired at"},
		"an address lacks": {rotation.Facts{Leaf: newLeaf(func(l *x509.Certificate) { l.DNSNames = []string{"n1"} }), Template: serving}, now, "192.0.2.7"},
	} {
		t.Run(name, func(t *testing.T) {
			test.facts.Now = now
			at, why := rotation.Due(test.facts)
			want := test.want
			if want.IsZero() {
				want = rotation.Deadline(test.facts.Leaf, time.Time{})
			}
			if !at.Equal(want) || !strings.Contains(why, test.why) {
				t.Errorf("got %v because %q, want %v because %q", at, why, want, test.why)
			}
		})
	}
}

func TestCRT7_Deadline(t *testing.T) {
	seen := map[time.Time]bool{}
	for i := range 1000 {
		leaf := newLeaf(func(l *x509.Certificate) { l.Raw = []byte{byte(i), byte(i >> 8)} })
		at := rotation.Deadline(leaf, time.Time{})
		if share := at.Sub(leaf.NotBefore).Hours() / 100; share < 0.7 || share > 0.9 || !at.Equal(rotation.Deadline(leaf, time.Time{})) {
			t.Fatalf("got %v", at)
		}
		seen[at] = true
	}
	if len(seen) < 900 {
		t.Errorf("got %d different deadlines of 1000 certificates", len(seen))
	}
	// A signer sets the start of a certificate back by most of its life.
	leaf := newLeaf(nil)
	got := leaf.NotAfter.Add(-time.Hour)
	if at := rotation.Deadline(leaf, got); at.Before(got.Add(42*time.Minute)) || at.After(got.Add(54*time.Minute)) {
		t.Errorf("got %v for a certificate from %v to %v", at, got, leaf.NotAfter)
	}
}

func TestCRT20_Names(t *testing.T) {
	names, ips := rotation.Names([]v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: "192.0.2.7"}, {Type: v1.NodeExternalIP, Address: "2001:db8::7"},
		{Type: v1.NodeHostName, Address: "192.0.2.1"}, {Type: v1.NodeHostName, Address: "n1"}, {Type: v1.NodeInternalDNS, Address: "n1"},
		{Type: v1.NodeExternalDNS, Address: "n1.example.com"}, {Type: v1.NodeInternalIP, Address: "not an address"},
		{Type: v1.NodeInternalIP, Address: "192.0.2.7"},
	})
	wantIPs := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}
	if !slices.Equal(names, []string{"n1", "n1.example.com"}) || !slices.Equal(ips, wantIPs) {
		t.Errorf("got %v and %v", names, ips)
	}
	if _, ok := rotation.ForServing("n1", []v1.NodeAddress{{Type: v1.NodeHostName, Address: "n1"}}); ok {
		t.Error("a certificate without address is requested")
	}
}

func TestCRT6_Name(t *testing.T) {
	template := rotation.ForClient("n1")
	withName, withIP := template, template
	withName.DNSNames = []string{"n1"}
	withIP.IPs = []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	names := []string{
		rotation.Name("s", []byte("k"), template), rotation.Name("s", []byte("l"), template), rotation.Name("r", []byte("k"), template),
		rotation.Name("s", []byte("k"), rotation.ForClient("n2")), rotation.Name("s", []byte("k"), withName), rotation.Name("s", []byte("k"), withIP),
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) || !strings.HasPrefix(name, "node-csr-") || len(name) > 63 {
			t.Errorf("got %s of %v", name, names)
		}
	}
	if rotation.Name("s", []byte("k"), rotation.ForClient("n1")) != names[0] {
		t.Error("the same key and template have two names")
	}
}

func TestCRT6_Judge(t *testing.T) {
	condition := func(kind certificatesv1.RequestConditionType, status v1.ConditionStatus) []certificatesv1.CertificateSigningRequestCondition {
		return []certificatesv1.CertificateSigningRequestCondition{{Type: kind, Status: status, Reason: "R", Message: "M"}}
	}
	for name, test := range map[string]struct {
		status certificatesv1.CertificateSigningRequestStatus
		want   rotation.Verdict
	}{
		"new":      {want: rotation.Verdict{State: rotation.Pending}},
		"approved": {certificatesv1.CertificateSigningRequestStatus{Conditions: condition("Approved", "True")}, rotation.Verdict{State: rotation.Pending}},
		"issued": {
			certificatesv1.CertificateSigningRequestStatus{Conditions: condition("Approved", "True"), Certificate: []byte("x")},
			rotation.Verdict{State: rotation.Issued},
		},
		"denied": {
			certificatesv1.CertificateSigningRequestStatus{Conditions: condition("Denied", "True")},
			rotation.Verdict{State: rotation.Refused, Reason: "denied: R: M"},
		},
		"failed": {
			certificatesv1.CertificateSigningRequestStatus{Conditions: condition("Failed", "True"), Certificate: []byte("x")},
			rotation.Verdict{State: rotation.Refused, Reason: "failed: R: M"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rotation.Judge(&certificatesv1.CertificateSigningRequest{Status: test.status}); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestCRT6_Pauses(t *testing.T) {
	var got []time.Duration
	for i := range 8 {
		got = append(got, rotation.PauseAfterError(i+1))
	}
	want := []time.Duration{2, 4, 8, 16, 32, 60, 60, 60}
	for i := range want {
		if got[i] != want[i]*time.Second {
			t.Errorf("got %v", got)
		}
	}
	if got := rotation.PauseAfterRefusal(1_000_000); got != time.Hour {
		t.Errorf("got %v", got)
	}
}
