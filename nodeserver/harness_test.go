package nodeserver_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"iter"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/nodeserver"
)

type userKey struct{}

// allow is a filter that lets everybody in as the user of the header User.
func allow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, r.Header.Get("User"))))
	})
}

func userOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

// fakeAgent has fixed pods.
type fakeAgent struct {
	pods   []*v1.Pod
	events []watch.Event
}

func (a *fakeAgent) LocalPods() []*v1.Pod { return a.pods }

func (a *fakeAgent) WatchLocalPods(ctx context.Context) iter.Seq[watch.Event] {
	return func(yield func(watch.Event) bool) {
		for _, event := range a.events {
			if !yield(event) {
				return
			}
		}
		<-ctx.Done()
	}
}

func newPod(namespace, name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u-" + "1"}}
}

// newCertificate returns a self-signed certificate for localhost.
func newCertificate(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, DNSNames: []string{"localhost"}, IsCA: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// newConfig returns a configuration that lets everybody in.
func newConfig(t *testing.T) nodeserver.Config {
	t.Helper()
	pair := newCertificate(t)
	return nodeserver.Config{
		Address: "127.0.0.1:0", Require: allow, UserOf: userOf, Agent: &fakeAgent{},
		TLS:       nodeserver.TLS{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair, nil }},
		Debugging: nodeserver.Debugging{Enabled: true, SystemLogs: true, Profiling: true, LogDir: t.TempDir()},
	}
}

func newServer(t *testing.T, config nodeserver.Config) *nodeserver.Server {
	t.Helper()
	s, err := nodeserver.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answer is what a client sees.
type answer struct {
	Code int
	Type string // content type
	Body string
}

// ask sends a request without a network. headers are names and values.
func ask(t *testing.T, handler http.Handler, method, path string, headers ...string) answer {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return answer{recorder.Code, recorder.Header().Get("Content-Type"), recorder.Body.String()}
}

// serve serves on a free port until the test ends. stop ends it earlier, and returns when the server has.
func serve(t *testing.T, s *nodeserver.Server) (address string, stop func()) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, listener) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

// newClient returns a client that speaks HTTP/2 if the server does. It does not verify certificates.
func newClient(t *testing.T, forceHTTP1 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: !forceHTTP1}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// get returns the response to a request. The test closes its body.
func get(t *testing.T, client *http.Client, url, user string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("User", user)
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func readAll(t *testing.T, response *http.Response) string {
	t.Helper()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
