package deed

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/action"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/view"
)

const (
	// maxContent bounds what a snapshot contains, so that it never takes more than 1 MiB, even if nothing can be compressed.
	maxContent   = 900 << 10
	maxSnapshots = 32 << 20
	logLines     = 200
	maxLog       = 64 << 10 // per container
	maxFile      = 128 << 10
	historyTime  = time.Hour
	maxProcesses = 32
	maxProcFile  = 16 << 10
)

// snapshots is a directory of archives with a bounded size.
type snapshots struct {
	dir string
	mu  sync.Mutex // one writer at a time
}

// archive is a snapshot that is being written.
type archive struct {
	buffer  bytes.Buffer
	gzip    *gzip.Writer
	tar     *tar.Writer
	at      time.Time
	left    int
	skipped []string
}

// snapshot saves what is known about a pod or the node.
func (d *Deeds) snapshot(ctx context.Context, request action.Request) (string, error) {
	if d.snapshots == nil {
		return "", fmt.Errorf("%w: there is no directory for snapshots", action.ErrRefused)
	}
	a := newArchive(time.Now())
	a.addJSON("alert.json", request.Alert)
	object := "node"
	if request.Object.Pod == "" {
		a.addJSON("node.json", d.config.Inspector.Node(ctx))
		d.addHistory(ctx, a, history.Query{Kinds: []history.Kind{
			history.KindNode, history.KindAlert, history.KindAction, history.KindSource, history.KindAgent,
		}})
	} else {
		object = request.Object.Namespace + "_" + request.Object.Pod
		if err := d.addPod(ctx, a, nameOf(request.Object)); err != nil {
			return "", err
		}
	}
	data, err := a.close()
	if err != nil {
		return "", err
	}
	file := fmt.Sprintf("%s-%s-%d.tar.gz", a.at.UTC().Format("20060102T150405Z"), object, request.ID)
	if err := d.snapshots.save(file, data); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, %d KiB", filepath.Join(d.snapshots.dir, file), (len(data)+1023)/1024), nil
}

func (d *Deeds) addPod(ctx context.Context, a *archive, name podid.FullName) error {
	known, found := d.config.Inspector.Facts(ctx, name)
	if !found {
		return fmt.Errorf("%w: the node does not have the pod", action.ErrRefused)
	}
	views := []view.PodView{view.NewPod(known)}
	d.config.Inspector.AddLoads(views)
	a.addJSON("pod.json", views[0])
	a.addJSON("explain.json", explain.Pod(known, explain.WhatIsWrong))
	if known.Pod != nil {
		d.addContainers(ctx, a, known.Pod)
	}
	d.addHistory(ctx, a, history.Query{Namespace: name.Namespace, Name: name.Name})
	return nil
}

// addHistory adds what the history has of the last hour.
func (d *Deeds) addHistory(ctx context.Context, a *archive, query history.Query) {
	if d.config.History == nil {
		return
	}
	query.Since, query.Limit = a.at.Add(-historyTime), history.MaxLimit
	if page, err := d.config.History.Query(ctx, query); err == nil {
		a.addLines("history.jsonl", page.Records)
	}
}

// addContainers adds logs, the runtime's knowledge, and processes.
func (d *Deeds) addContainers(ctx context.Context, a *archive, pod *v1.Pod) {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses)
	for i := range statuses {
		status := &statuses[i]
		if d.config.Logs == nil {
			break
		}
		if text, err := d.config.Logs(pod, status.Name, int(status.RestartCount), logLines, maxLog); err == nil {
			a.add("logs/"+status.Name+".log", []byte(text), maxLog)
		}
	}
	for i := range statuses {
		status := &statuses[i]
		_, id, found := strings.Cut(status.ContainerID, "://")
		if !found || d.config.Details == nil {
			continue
		}
		details, err := d.config.Details(ctx, id)
		if err != nil {
			continue
		}
		a.add("runtime/"+status.Name+".json", details.JSON, maxFile)
		if details.PID > 0 && status.State.Running != nil {
			a.addProcesses("processes/"+status.Name, details.PID)
		}
	}
}

func newArchive(at time.Time) *archive {
	a := &archive{at: at, left: maxContent}
	a.gzip = gzip.NewWriter(&a.buffer)
	a.tar = tar.NewWriter(a.gzip)
	return a
}

// add adds a file. What is too long is cut at its beginning, where it is oldest.
func (a *archive) add(name string, data []byte, limit int) {
	const header = 1024 // of a file in the archive, with padding
	limit = min(limit, a.left-header)
	if limit <= 0 {
		a.skipped = append(a.skipped, name)
		return
	}
	if len(data) > limit {
		data = data[len(data)-limit:]
	}
	a.left -= len(data) + header
	// A write to memory does not fail; close reports what does.
	_ = a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: a.at, Format: tar.FormatPAX})
	_, _ = a.tar.Write(data)
}

func (a *archive) addJSON(name string, value any) {
	if text, err := json.MarshalIndent(value, "", " "); err == nil && len(text) <= maxFile {
		a.add(name, append(text, '\n'), maxFile)
	}
}

// addLines adds records, oldest first; of too many the newest.
func (a *archive) addLines(name string, records []history.Record) {
	var lines [][]byte
	size := 0
	for i := range records { // newest first
		line, err := json.Marshal(records[i])
		if err != nil {
			continue
		}
		if size += len(line) + 1; size > 2*maxFile {
			break
		}
		lines = append(lines, append(line, '\n'))
	}
	slices.Reverse(lines)
	a.add(name, bytes.Join(lines, nil), 2*maxFile)
}

// addProcesses adds what the kernel says about a process and its descendants. They do not notice.
func (a *archive) addProcesses(dir string, pid int) {
	for _, pid := range descendants(pid) {
		for _, name := range []string{"status", "wchan", "stack", "limits"} {
			text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
			if err == nil && len(text) > 0 {
				a.add(fmt.Sprintf("%s/%d/%s", dir, pid, name), text, maxProcFile)
			}
		}
	}
}

// descendants returns a process and what it started, at most maxProcesses.
func descendants(pid int) []int {
	children := map[int][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return []int{pid}
	}
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if parent, found := parentOf(child); found {
			children[parent] = append(children[parent], child)
		}
	}
	found := []int{pid}
	for i := 0; i < len(found) && len(found) < maxProcesses; i++ {
		found = append(found, children[found[i]]...)
	}
	return found[:min(len(found), maxProcesses)]
}

// parentOf reads the parent of a process: the second field after its name, which may contain anything but is followed by the last bracket.
func parentOf(pid int) (int, bool) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}

func (a *archive) close() ([]byte, error) {
	if len(a.skipped) > 0 {
		a.left = maxFile
		a.add("SKIPPED", []byte(strings.Join(a.skipped, "\n")+"\n"), maxFile)
	}
	if err := a.tar.Close(); err != nil {
		return nil, err
	}
	if err := a.gzip.Close(); err != nil {
		return nil, err
	}
	return a.buffer.Bytes(), nil
}

// save writes a snapshot and removes the oldest ones if there are too many.
func (s *snapshots) save(name string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	if err := s.prune(maxSnapshots - len(data)); err != nil {
		return err
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	const partial = ".partial"
	if err := root.Remove(partial); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := root.WriteFile(partial, data, 0o600); err != nil {
		return err
	}
	return root.Rename(partial, name)
}

// prune removes the oldest snapshots until at most size bytes are left. Their names begin with the time.
func (s *snapshots) prune(size int) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(x, y os.DirEntry) int { return -cmp.Compare(x.Name(), y.Name()) })
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if size -= int(info.Size()); size < 0 {
			if err := os.Remove(filepath.Join(s.dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
