package source_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

// newThousandFiles scans a directory of 1000 manifests that are old enough for reliable stamps.
func newThousandFiles(b *testing.B) (dir string, f *source.File) {
	b.Helper()
	dir = b.TempDir()
	for i := range 1000 {
		write(b, fmt.Sprintf("%s/web-%04d.yaml", dir, i), realManifest(fmt.Sprintf("web-%04d", i), "registry.example/web:1"))
	}
	f = newFile(b, dir, func(c *source.FileConfig) { c.Decode = nil })
	if listing := f.Scan(); len(listing.Pods) != 1000 {
		b.Fatalf("got %d pods, want 1000; problems: %v", len(listing.Pods), listing.Problems)
	}
	time.Sleep(2100 * time.Millisecond) // the change time of a file cannot be set
	f.Scan()
	return dir, f
}

func BenchmarkFile_Scan1000Unchanged(b *testing.B) {
	_, f := newThousandFiles(b)
	b.ReportAllocs()
	for b.Loop() {
		f.Scan()
	}
}

func BenchmarkFile_Scan1000OneChanged(b *testing.B) {
	dir, f := newThousandFiles(b)
	b.ReportAllocs()
	version := 1
	for b.Loop() {
		version++
		text := realManifest("web-0500", fmt.Sprintf("registry.example/web:%d", version))
		if err := os.WriteFile(dir+"/web-0500.yaml", []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
		f.Scan()
	}
}

// BenchmarkMux_OneEventAmong5000Pods measures one watch event from the source to the consumer.
func BenchmarkMux_OneEventAmong5000Pods(b *testing.B) {
	fake := newFakeSource(podid.API)
	mux, err := source.NewMux(source.MuxConfig{Sources: []source.Source{fake}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- mux.Run(ctx) }()
	sink := <-fake.sink
	pods := make([]*v1.Pod, 5000)
	for i := range pods {
		pods[i] = newPod(fmt.Sprintf("web-%d", i), fmt.Sprintf("uid-%d", i), withVersion("1"))
	}
	sink.Replace(pods)
	(<-mux.Updates()).Ack()
	b.ReportAllocs()
	i := 1
	for b.Loop() {
		i++
		changed := *pods[i%len(pods)]
		changed.ResourceVersion = fmt.Sprint(i)
		changed.Status.Message = changed.ResourceVersion
		sink.Apply([]*v1.Pod{&changed}, nil)
		if u := <-mux.Updates(); u.Op != source.OpReconcile || len(u.Pods) != 1 {
			b.Fatalf("got %s, want one RECONCILE", describe(u))
		}
	}
	b.StopTimer()
	cancel()
	<-done
}

func BenchmarkMux_Relist5000Unchanged(b *testing.B) {
	fake := newFakeSource(podid.API)
	mux, err := source.NewMux(source.MuxConfig{Sources: []source.Source{fake}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- mux.Run(ctx) }()
	sink := <-fake.sink
	list := func() []*v1.Pod {
		pods := make([]*v1.Pod, 5000)
		for i := range pods {
			pods[i] = newPod(fmt.Sprintf("web-%d", i), fmt.Sprintf("uid-%d", i), withVersion("1"))
		}
		return pods
	}
	sink.Replace(list())
	(<-mux.Updates()).Ack()
	lists := [2][]*v1.Pod{list(), list()}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		marker := newPod("marker", fmt.Sprint("marker-", i), withVersion("1"))
		sink.Replace(append(lists[i%2][:5000:5000], marker))
		for {
			if u := <-mux.Updates(); u.Op == source.OpAdd {
				break
			}
		}
	}
	b.StopTimer()
	cancel()
	<-done
}
