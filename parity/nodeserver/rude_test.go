package nodeserver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/heraldnode/herald/parity/containerd"
)

// rudeAddress is where rude clients come from. The server limits connections by address, and the others come from 127.0.0.1.
const rudeAddress = "127.0.0.2"

// dial opens a connection of a rude client, without TLS.
func (n *node) dial(t *testing.T) net.Conn {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(rudeAddress)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", n.HTTPSAddress())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// dialTLS opens a connection of a rude client without certificate.
func (n *node) dialTLS(t *testing.T) net.Conn {
	t.Helper()
	conn := tls.Client(n.dial(t), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // not the subject
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return conn
}

// expectAnswer checks that the server answers a client with and one without permissions, on new connections.
func expectAnswer(t *testing.T, n *node, users *users) {
	t.Helper()
	if code, body := users.apiServer.send(t, users.apiServer.client(t), n, "GET /pods"); code != http.StatusOK {
		t.Errorf("kube-apiserver: got %d %q", code, body)
	}
	if code, body := users.none.send(t, users.none.client(t), n, "GET /pods"); code != http.StatusUnauthorized {
		t.Errorf("no credentials: got %d %q", code, body)
	}
}

// awaitClosed waits until the server has closed the connection, and returns what it sent before.
func awaitClosed(t *testing.T, conn net.Conn) string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(requestTimeout)); err != nil {
		t.Fatal(err)
	}
	received, err := io.ReadAll(conn)
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("the server keeps the connection open")
	}
	return string(received)
}

// TestSRV8_RudeClients keeps the server busy in several ways at once. Each time, others are answered.
func TestSRV8_RudeClients(t *testing.T) {
	n, users := shared.herald(t)
	for _, test := range []struct {
		name    string
		connect func(*testing.T) net.Conn
		send    string
		count   int
		closes  bool // the server closes such a connection soon
	}{
		{"no handshake", n.dial, "", 50, false},
		{"half a handshake", n.dial, "\x16\x03\x01\x02\x00\x01", 50, true},
		{"no TLS", n.dial, "GET /pods HTTP/1.1\r\nHost: node\r\n\r\n", 20, true},
		{"idle", n.dialTLS, "", 200, false},
		{"half a header", n.dialTLS, "GET /pods HTTP/1.1\r\nHost: node\r\nX-Slow: ", 50, true},
		{"no body", n.dialTLS, "POST /run/default/none/c HTTP/1.1\r\nHost: node\r\nContent-Length: 1000\r\n\r\n", 50, false},
		{"garbage", n.dialTLS, strings.Repeat("\x00\xff", 4096) + "\r\n\r\n", 20, true},
		{"no more after HTTP/2 preface", n.dialTLS, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 20, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var connections []net.Conn
			for range test.count {
				conn := test.connect(t)
				if _, err := io.WriteString(conn, test.send); err != nil {
					t.Fatal(err)
				}
				connections = append(connections, conn)
			}
			expectAnswer(t, n, users)
			if test.closes {
				for _, conn := range connections {
					awaitClosed(t, conn)
				}
			}
		})
	}
}

// TestSRV8_HugeHeaders checks that neither many nor large headers are read without limit.
func TestSRV8_HugeHeaders(t *testing.T) {
	n, users := shared.herald(t)
	for name, header := range map[string]string{
		"one":   "X-Large: " + strings.Repeat("x", 3<<20) + "\r\n",
		"many":  strings.Repeat("X-Many: "+strings.Repeat("x", 1000)+"\r\n", 3000),
		"path":  "",
		"token": "Authorization: Bearer " + strings.Repeat("x", 900<<10) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := "/pods"
			want := "431 "
			switch name {
			case "path":
				path += "?" + strings.Repeat("x", 3<<20)
			case "token":
				want = "401 " // below the limit, and not worth a question to the API server
			}
			conn := n.dialTLS(t)
			go func() {
				_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: node\r\nConnection: close\r\n"+header+"\r\n")
			}()
			answer := awaitClosed(t, conn)
			// The server may close the connection while the client sends, and the answer is lost.
			if answer != "" && !strings.Contains(answer, want) {
				t.Errorf("got %.200q, want %s", answer, want)
			}
			expectAnswer(t, n, users)
		})
	}
}

// createPod creates a pod on the node and waits until it runs.
func (n *node) createPod(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), requestTimeout)
	defer cancel()
	admin, err := kubernetes.NewForConfig(n.cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	pods := admin.CoreV1().Pods(metav1.NamespaceDefault)
	if _, err := pods.Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{
			NodeName: n.name, TerminationGracePeriodSeconds: new(int64(0)), AutomountServiceAccountToken: new(false),
			Containers: []v1.Container{{
				Name: "main", Image: containerd.TestpodImage, ImagePullPolicy: v1.PullIfNotPresent, Command: []string{"/testpod", "pause"},
			}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pods.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
	for {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pod.Status.Phase == v1.PodRunning {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// exec runs a command in the pod with the permissions of kube-apiserver.
func (n *node) exec(ctx context.Context, t *testing.T, pod string, streams remotecommand.StreamOptions, command ...string) error {
	t.Helper()
	target := &url.URL{Scheme: "https", Host: n.HTTPSAddress(), Path: "/exec/default/" + pod + "/main"}
	query := url.Values{"command": command}
	for name, isWanted := range map[string]bool{
		"input": streams.Stdin != nil, "output": streams.Stdout != nil, "error": streams.Stderr != nil,
	} {
		if isWanted {
			query.Set(name, "1")
		}
	}
	target.RawQuery = query.Encode()
	config := &rest.Config{TLSClientConfig: rest.TLSClientConfig{
		Insecure: true, CertData: n.users.apiServer.certPEM, KeyData: n.users.apiServer.keyPEM,
	}}
	executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, target)
	if err != nil {
		t.Fatal(err)
	}
	return executor.StreamWithContext(ctx, streams)
}

// deafWriter reports the first write, and never returns from it until it is closed.
type deafWriter struct{ called, closed chan struct{} }

func (w deafWriter) Write([]byte) (int, error) {
	select {
	case w.called <- struct{}{}:
	case <-w.closed:
	}
	<-w.closed
	return 0, io.ErrClosedPipe
}

// TestSRV8_DeafExec keeps commands open whose clients neither read nor write, and checks that others can run commands.
func TestSRV8_DeafExec(t *testing.T) {
	n, users := shared.herald(t)
	n.createPod(t, "rude")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	deaf := deafWriter{make(chan struct{}), make(chan struct{})}
	input, inputEnd := io.Pipe() // never written
	const clients = 20
	ended := make(chan error, clients)
	for range clients {
		go func() {
			ended <- n.exec(ctx, t, "rude", remotecommand.StreamOptions{Stdin: input, Stdout: deaf, Stderr: deaf}, "/testpod", "sleep", "24h")
		}()
	}
	for range clients {
		select {
		case <-deaf.called: // the command runs and has printed a line
		case err := <-ended:
			t.Fatalf("a command ended: %v", err)
		case <-time.After(requestTimeout):
			t.Fatal("a command does not run")
		}
	}
	var output bytes.Buffer
	err := n.exec(ctx, t, "rude", remotecommand.StreamOptions{Stdout: &output, Stderr: io.Discard}, "/testpod", "env")
	if err != nil || !strings.Contains(output.String(), "PATH=") {
		t.Errorf("another command: got %q, %v", output.String(), err)
	}
	expectAnswer(t, n, users)
	cancel()
	close(deaf.closed)
	_ = inputEnd.Close()
	for range clients {
		select {
		case <-ended:
		case <-time.After(requestTimeout):
			t.Fatal("a command does not end with its client")
		}
	}
}

// TestSRV8_ExecOfThoseWhoVanish cuts connections in the middle of the upgrade to streams, without closing them in order.
func TestSRV8_ExecOfThoseWhoVanish(t *testing.T) {
	n, users := shared.herald(t)
	n.createPod(t, "vanishing")
	pair := users.apiServer.tls(t)
	for i, upgrade := range []string{"SPDY/3.1", "websocket"} {
		for range 20 {
			raw := n.dial(t)
			conn := tls.Client(raw, pair.Clone())
			_, err := fmt.Fprintf(conn, "POST /exec/default/vanishing/main?command=/testpod&command=sleep&command=24h&input=1&output=1 HTTP/1.1\r\n"+
				"Host: node\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n", upgrade)
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				_ = raw.(*net.TCPConn).SetLinger(0) //nolint:forcetypeassert // of dial
				_ = raw.Close()
			}
		}
		expectAnswer(t, n, users)
	}
	var output bytes.Buffer
	if err := n.exec(t.Context(), t, "vanishing", remotecommand.StreamOptions{Stdout: &output}, "/testpod", "env"); err != nil {
		t.Errorf("another command: %v", err)
	}
}
