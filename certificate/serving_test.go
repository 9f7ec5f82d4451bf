package certificate_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/heraldnode/herald/certificate"
)

// issue returns a certificate of the template in PEM and its key. It is its own authority.
func issue(t *testing.T, template *x509.Certificate) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(private); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key
}

// named returns a certificate with this common name that is valid for a day.
func named(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	return issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	})
}

// write writes a file.
func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// serve returns the common name and the certificate that a server shows.
func serve(t *testing.T, serving certificate.Serving) (*tls.Certificate, string) {
	t.Helper()
	pair, err := serving.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair, pair.Leaf.Subject.CommonName
}

func TestSRV3_FilesReload(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	synctest.Test(t, func(t *testing.T) {
		files := certificate.NewFiles(certFile, keyFile, nil)
		if _, err := files.GetCertificate(nil); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v without files", err)
		}
		put := func(name string) {
			cert, key := named(t, name)
			write(t, certFile, cert)
			write(t, keyFile, key)
			time.Sleep(time.Second)
		}
		put("first")
		if _, name := serve(t, files); name != "first" {
			t.Errorf("got %s", name)
		}
		put("the second")
		if _, name := serve(t, files); name != "the second" {
			t.Errorf("got %s after the files were replaced", name)
		}

		cert, key := named(t, "the third one")
		write(t, certFile, cert) // the key is not there yet
		time.Sleep(time.Second)
		if _, name := serve(t, files); name != "the second" || files.Problem(time.Now()) == nil {
			t.Errorf("got %s, want the last good pair; problem: %v", name, files.Problem(time.Now()))
		}
		write(t, keyFile, key)
		time.Sleep(time.Second)
		if _, name := serve(t, files); name != "the third one" || files.Problem(time.Now()) != nil {
			t.Errorf("got %s, problem: %v", name, files.Problem(time.Now()))
		}
		if err := files.Problem(time.Now().AddDate(1, 0, 0)); err == nil || !strings.Contains(err.Error(), certFile) {
			t.Errorf("got problem %v of an expired certificate", err)
		}
	})
}

func TestSRV3_ReadableKeyRejected(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // others must reach the file
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	cert, key := named(t, "a")
	write(t, certFile, cert)
	write(t, keyFile, key)
	if err := os.Chmod(keyFile, 0o666); err != nil { //nolint:gosec // the point of the test
		t.Fatal(err)
	}
	if pair, err := certificate.NewFiles(certFile, keyFile, nil).GetCertificate(nil); err == nil {
		t.Errorf("got %v of a key that any user can replace", pair.Leaf.Subject)
	}
}

func TestSRV5_CAFileReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.crt")
	first, _ := named(t, "first")
	second, _ := named(t, "second")
	verifies := func(t *testing.T, pool certificate.CAPool, cert []byte) bool {
		t.Helper()
		block, _ := pem.Decode(cert)
		parsed, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		_, err = parsed.Verify(x509.VerifyOptions{
			Roots: pool.Current(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, CurrentTime: parsed.NotBefore.Add(time.Minute),
		})
		return err == nil
	}
	synctest.Test(t, func(t *testing.T) {
		pool := certificate.NewCAFile(path, nil)
		if verifies(t, pool, first) || pool.Problem() == nil {
			t.Errorf("a missing file verifies, or is no problem: %v", pool.Problem())
		}
		write(t, path, first)
		time.Sleep(time.Second)
		before := pool.Current()
		time.Sleep(time.Second)
		if !verifies(t, pool, first) || verifies(t, pool, second) || pool.Current() != before {
			t.Error("the pool is not that of the file")
		}
		for name, content := range map[string][]byte{"empty": nil, "garbage": []byte("no certificate")} {
			write(t, path, content)
			time.Sleep(time.Second)
			if !verifies(t, pool, first) || pool.Problem() == nil {
				t.Errorf("%s: the last good bundle is gone, or there is no problem: %v", name, pool.Problem())
			}
		}
		write(t, path, append(bytes.Clone(second), first...))
		time.Sleep(time.Second)
		if !verifies(t, pool, first) || !verifies(t, pool, second) || pool.Problem() != nil {
			t.Errorf("the new bundle is not used: %v", pool.Problem())
		}
	})
}

// selfSigned returns the self-signed certificate of a directory, and a function that changes the node's addresses.
func selfSigned(t *testing.T, dir string) (*certificate.SelfSigned, func(...string)) {
	t.Helper()
	var addresses []netip.Addr
	s, err := certificate.NewSelfSigned(certificate.SelfSignedConfig{
		Dir: dir, NodeName: "n1", Names: func() ([]string, []netip.Addr) { return []string{"n1", "n1.example.com"}, addresses },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, func(texts ...string) {
		addresses = nil
		for _, text := range texts {
			addresses = append(addresses, netip.MustParseAddr(text))
		}
	}
}

func TestSRV4_SelfSigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	synctest.Test(t, func(t *testing.T) {
		s, setAddresses := selfSigned(t, dir)
		setAddresses("192.0.2.7", "2001:db8::7")
		first, _ := serve(t, s)
		for _, host := range []string{"n1", "n1.example.com", "192.0.2.7", "2001:db8::7"} {
			if err := first.Leaf.VerifyHostname(host); err != nil {
				t.Error(err)
			}
		}
		pool := x509.NewCertPool()
		pool.AddCert(first.Leaf)
		if _, err := first.Leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: time.Now()}); err != nil {
			t.Errorf("a client that trusts the file rejects it: %v", err)
		}
		again, setAgain := selfSigned(t, dir)
		setAgain("192.0.2.7") // fewer names are no reason
		if pair, _ := serve(t, again); !bytes.Equal(pair.Certificate[0], first.Certificate[0]) {
			t.Error("a restart makes another certificate")
		}
		setAddresses("192.0.2.8")
		moved, _ := serve(t, s)
		if err := moved.Leaf.VerifyHostname("192.0.2.8"); err != nil {
			t.Error(err)
		}
		time.Sleep(moved.Leaf.NotAfter.Sub(moved.Leaf.NotBefore) * 79 / 100)
		if pair, _ := serve(t, s); pair != moved {
			t.Error("renewed before 80 % of its life")
		}
		time.Sleep(moved.Leaf.NotAfter.Sub(moved.Leaf.NotBefore) / 50)
		if pair, _ := serve(t, s); pair == moved || !pair.Leaf.NotAfter.After(moved.Leaf.NotAfter) {
			t.Error("not renewed after 80 % of its life")
		}
	})
	for path, want := range map[string]os.FileMode{dir: 0o700, dir + "/kubelet.crt": 0o600, dir + "/kubelet.key": 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v", path, info.Mode(), err)
		}
	}
}

// A pair that does not match, as after a crash between the files, is made anew; one that an operator put there stays.
func TestSRV4_PairOnDisk(t *testing.T) {
	dir := t.TempDir()
	cert, key := named(t, "operator.example.com")
	write(t, filepath.Join(dir, "kubelet.crt"), cert)
	_, otherKey := named(t, "other")
	write(t, filepath.Join(dir, "kubelet.key"), otherKey)
	s, _ := selfSigned(t, dir)
	if _, name := serve(t, s); !strings.HasPrefix(name, "n1@") {
		t.Errorf("got %s", name)
	}
	write(t, filepath.Join(dir, "kubelet.crt"), cert)
	write(t, filepath.Join(dir, "kubelet.key"), key)
	s, setAddresses := selfSigned(t, dir)
	setAddresses("192.0.2.9")
	if _, name := serve(t, s); name != "operator.example.com" {
		t.Errorf("got %s, want the operator's", name)
	}
}

// A directory that cannot be written does not keep the server from answering.
func TestSRV4_UnwritableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, nil)
	s, _ := selfSigned(t, filepath.Join(file, "pki"))
	first, _ := serve(t, s)
	if second, _ := serve(t, s); first != second {
		t.Error("each handshake gets another certificate")
	}
}

func TestCRT21_FirstOf(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	synctest.Test(t, func(t *testing.T) {
		own, _ := selfSigned(t, filepath.Join(dir, "pki"))
		serving := certificate.FirstOf(certificate.NewFiles(certFile, keyFile, nil), own)
		if _, name := serve(t, serving); !strings.HasPrefix(name, "n1@") {
			t.Errorf("got %s until the signed one is there", name)
		}
		cert, key := named(t, "signed")
		write(t, keyFile, key)
		write(t, certFile, cert)
		time.Sleep(time.Second)
		if _, name := serve(t, serving); name != "signed" {
			t.Errorf("got %s", name)
		}
	})
}
