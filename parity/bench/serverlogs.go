package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// logLine is an entry of a container's log with a line of 80 bytes.
const (
	logLine     = "2026-01-02T15:04:05.%09dZ stdout F %079d\n"
	lineBytes   = 80
	bytesPerGB  = 1e9
	bytesPerMB  = 1e6
	followQuery = "?follow=true"
)

// writeLog replaces the log by one of about that size, and returns its size and that of its lines. The container does not write
// meanwhile.
func writeLog(file string, size int64) (written, content int64, err error) {
	log, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return 0, 0, err
	}
	buffered := bufio.NewWriterSize(log, 1<<20)
	for i := 0; written < size; i++ {
		n, err := fmt.Fprintf(buffered, logLine, i, i)
		if err != nil {
			return 0, 0, errors.Join(err, log.Close())
		}
		written += int64(n)
		content += lineBytes
	}
	return written, content, errors.Join(buffered.Flush(), log.Close())
}

// compareLogs reads a large log, and follows it until everything has arrived.
func (p serverPair) compareLogs(ctx context.Context, profile ServerProfile) ([]Result, error) {
	var size, content int64
	for _, n := range p {
		_, file := n.logPath()
		var err error
		if size, content, err = writeLog(file, profile.LogBytes); err != nil {
			return nil, err
		}
	}
	read := func(query string, http2 bool) func(*serverNode) (serverSample, error) {
		return func(n *serverNode) (serverSample, error) {
			cpu, took, err := n.cpuTimeOf(func() error { return n.readLog(ctx, query, content, http2) })
			return serverSample{float64(size) / bytesPerMB / took, cpu / (float64(size) / bytesPerGB)}, err
		}
	}
	var results []Result
	for _, measurement := range []struct {
		name, query, description string
		http2                    bool
	}{
		{"server_log", "", "", false},
		{"server_log_http2", "", ", Herald's over HTTP/2, which the kubelet does not serve", true},
		{"server_log_follow", followQuery, ", followed until all of it has arrived", false},
	} {
		samples, err := p.alternate(profile.Rounds, read(measurement.query, measurement.http2))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", measurement.name, err)
		}
		p[0].env.logf("%s: kubelet %.2f, Herald %.2f", measurement.name, samples[0], samples[1])
		description := fmt.Sprintf("log of %s over HTTPS%s", formatMegabytes(float64(size)), measurement.description)
		results = append(results, samples.results(measurement.name, description, "MB/s", "s per GB")...)
	}
	return results, nil
}

// readLog reads that many bytes of the log. Unless it is followed, there must not be more.
func (n *serverNode) readLog(ctx context.Context, query string, content int64, http2 bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, err := n.newClient(http2)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	path, _ := n.logPath()
	response, err := n.get(ctx, client, path+query)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	buffer := make([]byte, 64<<10)
	var received int64
	for err == nil && (query == "" || received < content) {
		var count int
		count, err = response.Body.Read(buffer)
		received += int64(count)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil && received != content {
		err = fmt.Errorf("log has %d bytes, want %d", received, content)
	}
	return err
}

// compareFollowers lets many clients follow a log that is not written to.
func (p serverPair) compareFollowers(ctx context.Context, profile ServerProfile) ([]Result, error) {
	var growth [2]float64
	var served [2]int
	for side, n := range p {
		var err error
		if growth[side], served[side], err = n.measureFollowers(ctx, profile); err != nil {
			return nil, fmt.Errorf("followers: %w", err)
		}
		n.env.logf("%d followers: %s, %d got the next line", profile.Followers, formatMegabytes(growth[side]), served[side])
	}
	return []Result{
		{
			Name: "server_followers_rss", Kubelet: formatMegabytes(growth[0]), Herald: formatMegabytes(growth[1]), Value: growth[1] / growth[0],
			Description: fmt.Sprintf("resident memory that the agent gains with %d followers of a log: Herald's divided by the kubelet's",
				profile.Followers), Goal: AtMost(1),
		},
		{
			Name: "server_followers_served", Kubelet: fmt.Sprint(served[0]), Herald: fmt.Sprint(served[1]),
			Value: float64(served[1]) / float64(profile.Followers), Goal: AtLeast(1),
			Description: fmt.Sprintf("of these followers, those that got the next line: Herald's divided by %d; the kubelet needs an inotify "+
				"instance for each, of which a user has 128 by default", profile.Followers),
		},
	}, nil
}

// measureFollowers returns by how many bytes the agent grew, and how many followers got a line that was written after that.
func (n *serverNode) measureFollowers(ctx context.Context, profile ServerProfile) (growth float64, served int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := n.readFirstLine(ctx); err != nil { // loads what the first request needs
		return 0, 0, err
	}
	before, err := n.agent.Usage()
	if err != nil {
		return 0, 0, err
	}
	followers, err := n.startFollowers(ctx, profile.Followers)
	if err != nil {
		return 0, 0, err
	}
	defer followers.close()
	select {
	case <-followers.begun:
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	time.Sleep(profile.FollowerSettle)
	after, err := n.agent.Usage()
	if err != nil {
		return 0, 0, err
	}
	_, file := n.logPath()
	if err := appendLog(file, nextLine); err != nil {
		return 0, 0, err
	}
	followers.running.Wait() // each has got the line, or was disconnected
	return float64(after.ResidentBytes - before.ResidentBytes), int(followers.served.Load()), nil
}

func (n *serverNode) readFirstLine(ctx context.Context) error {
	client, err := n.newClient(false)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	path, _ := n.logPath()
	response, err := n.get(ctx, client, path+followQuery)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = bufio.NewReader(response.Body).ReadString('\n')
	return err
}

// nextLine is what followers wait for.
const nextLine = "the next line"

func appendLog(file, line string) error {
	log, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(log, "%s stdout F %s\n", time.Now().UTC().Format(time.RFC3339Nano), line)
	return errors.Join(err, log.Close())
}

// followers are clients that follow a log, each with a connection of its own.
type followers struct {
	client  *http.Client
	begun   chan struct{} // closed when each has its first line, or was refused
	served  atomic.Int64
	running sync.WaitGroup
}

func (f *followers) close() { f.client.CloseIdleConnections() }

func (n *serverNode) startFollowers(ctx context.Context, count int) (*followers, error) {
	client, err := n.newClient(false)
	if err != nil {
		return nil, err
	}
	f := &followers{client: client, begun: make(chan struct{})}
	var waiting sync.WaitGroup
	waiting.Add(count)
	for range count {
		f.running.Go(func() {
			begin := sync.OnceFunc(waiting.Done)
			defer begin()
			if n.follow(ctx, client, begin) {
				f.served.Add(1)
			}
		})
	}
	go func() { waiting.Wait(); close(f.begun) }()
	return f, nil
}

// follow reports whether the next line arrives. It calls begin with the first line.
func (n *serverNode) follow(ctx context.Context, client *http.Client, begin func()) bool {
	path, _ := n.logPath()
	response, err := n.get(ctx, client, path+followQuery)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		begin()
		if strings.Contains(lines.Text(), nextLine) {
			return true
		}
	}
	return false
}
