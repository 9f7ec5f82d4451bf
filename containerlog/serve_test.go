package containerlog_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/observed"
)

// serve returns the URL of a server of the log.
func (n *node) serve() string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.logs.Serve(w, r, newPod(), "web")
	}))
	n.t.Cleanup(server.Close)
	return server.URL
}

// reply is a response whose body the test closes at its end.
type reply struct {
	code        int
	contentType string
	body        *bufio.Reader
}

func (n *node) get(url string) reply {
	n.t.Helper()
	request, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = response.Body.Close() })
	return reply{response.StatusCode, response.Header.Get("Content-Type"), bufio.NewReader(response.Body)}
}

// TestLOG32_Header gets the header of a followed log without lines, and then each line.
func TestLOG32_Header(t *testing.T) {
	n := newNode(t)
	n.run()
	n.set("1", 0, observed.Running)
	n.write(n.path("web", 0), "")
	response := n.get(n.serve() + "?follow=true")
	if response.code != http.StatusOK || response.contentType != "text/plain" {
		t.Errorf("got %d, %q", response.code, response.contentType)
	}
	body := response.body
	for i := range 3 {
		n.write(n.path("web", 0), entries(fmt.Sprintf("0 stdout F line %d", i)))
		if line, err := body.ReadString('\n'); line != fmt.Sprintf("line %d\n", i) {
			t.Fatalf("got %q, %v", line, err)
		}
	}
	n.set("1", 0, observed.Exited)
	n.wake <- uid
	if rest, err := io.ReadAll(body); err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v, want the end", rest, err)
	}
}

func TestLOG14_ErrorBeforeHeader(t *testing.T) {
	n := newNode(t)
	url := n.serve()
	for query, want := range map[string]string{
		"":                "400 unable to retrieve container logs for test://1: its log file is gone",
		"?tailLines=x":    `400 {"message": "Unable to decode query."}`,
		"?tailLines=-1":   `422 {"message": "Invalid request."}`,
		"?previous=true&": `400 previous terminated container "web" in pod "web-1" not found`,
	} {
		response := n.get(url + query)
		body, err := io.ReadAll(response.body)
		if got := fmt.Sprint(response.code, " ", string(body)); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", query, got, err, want)
		}
	}
}

// TestLOG31_AbortsConnection stops the agent while a log is followed: the client must not take what it has for all.
func TestLOG31_AbortsConnection(t *testing.T) {
	n := newNode(t)
	stop := n.run()
	n.set("1", 0, observed.Running)
	n.write(n.path("web", 0), entries("0 stdout F a"))
	response := n.get(n.serve() + "?follow=true")
	body := response.body
	if line, err := body.ReadString('\n'); line != "a\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	stop()
	if rest, err := io.ReadAll(body); err == nil || strings.Contains(string(rest), "stopping") {
		t.Errorf("got %q, %v, want an error of the connection", rest, err)
	}
}

// TestLOG30_OneInstance follows many logs in a hundred directories.
func TestLOG30_OneInstance(t *testing.T) {
	n := newNode(t)
	before := inotifyInstances(t)
	n.run()
	n.set("1", 0, observed.Running)
	const directories, each = 100, 15
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan struct{}, directories*each*2)
	for i := range directories {
		pod := newPod()
		pod.Name = fmt.Sprintf("pod-%d", i)
		path := n.LogPath(pod, "web", 0)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		n.write(path, entries("0 stdout F a"))
		for range each {
			stream, err := n.logs.Open(ctx, pod, &v1.PodLogOptions{Container: "web", Follow: true})
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() {
				defer stream.Close()
				_ = stream.Copy(ctx, countingWriter{seen}, nil)
			})
		}
	}
	for range directories * each {
		<-seen
	}
	if got := inotifyInstances(t) - before; got != 1 {
		t.Errorf("got %d inotify instances, want 1", got)
	}
	for i := range directories {
		pod := newPod()
		pod.Name = fmt.Sprintf("pod-%d", i)
		n.write(n.LogPath(pod, "web", 0), entries("1 stdout F b"))
	}
	for range directories * each {
		<-seen
	}
}

type countingWriter struct{ seen chan struct{} }

func (w countingWriter) Write(content []byte) (int, error) {
	w.seen <- struct{}{}
	return len(content), nil
}

// inotifyInstances returns the number of inotify instances of this process.
func inotifyInstances(t *testing.T) int {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	instances := 0
	for _, link := range links {
		if target, _ := os.Readlink(link); strings.Contains(target, "inotify") {
			instances++
		}
	}
	return instances
}
