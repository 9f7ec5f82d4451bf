package diff_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// site is a server that answers the first request with its first reply, the second with the second, and further ones with
// the last. It writes down what it is asked, byte by byte.
type site struct {
	port int32

	mu      sync.Mutex // guards all below
	replies []reply
	heads   []string
}

// reply is an answer as it goes over the wire.
type reply struct {
	// Text is the answer. Then the connection is closed.
	Text string
	// Deaf servers hang up without having read a request.
	Deaf bool
	// Silent servers do not hang up until the client does.
	Silent bool
}

// newSite serves plain text, or TLS with a certificate that nobody trusts.
func newSite(t *testing.T, secure bool, replies ...reply) *site {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{port: int32(listener.Addr().(*net.TCPAddr).Port), replies: replies}
	if secure {
		listener = tls.NewListener(listener, selfSigned())
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			served.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		served.Wait()
	})
	return s
}

// selfSigned is the configuration of a server with a certificate that nobody trusts.
func selfSigned() *tls.Config {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	return &tls.Config{Certificates: server.TLS.Certificates, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
}

func (s *site) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	s.mu.Lock()
	r := s.replies[min(len(s.heads), len(s.replies)-1)]
	s.mu.Unlock()
	if r.Deaf {
		s.note("a connection")
		return
	}
	head := headOf(conn)
	if head == "" {
		return
	}
	s.note(head)
	_, _ = io.WriteString(conn, r.Text)
	if r.Silent {
		_, _ = io.Copy(io.Discard, conn)
	}
}

func (s *site) note(head string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heads = append(s.heads, head)
}

// headOf reads a request's first line and its headers, and shows them in order: that of headers means nothing.
func headOf(conn io.Reader) string {
	reader := bufio.NewReader(conn)
	first, err := reader.ReadString('\n')
	if err != nil {
		return ""
	}
	var headers []string
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return ""
		}
		if line == "\r\n" {
			break
		}
		headers = append(headers, sameAgent(line))
	}
	slices.Sort(headers)
	return fmt.Sprintf("%q", first+strings.Join(headers, ""))
}

// seen answers like that from now on, lets somebody ask, and returns what was asked.
func (s *site) seen(replies []reply, ask func() finding) (finding, []string) {
	s.mu.Lock()
	s.replies, s.heads = replies, nil
	s.mu.Unlock()
	found := ask()
	s.mu.Lock()
	defer s.mu.Unlock()
	return found, slices.Clone(s.heads)
}
