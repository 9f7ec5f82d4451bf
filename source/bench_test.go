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

// realManifest is a manifest of ordinary size for manifest.Decode.
func realManifest(name, image string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
  labels: {app: web, tier: front}
spec:
  hostNetwork: true
  containers:
  - name: web
    image: %s
    args: [--listen=:8080, --verbose]
    ports: [{containerPort: 8080}]
    resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}}
    livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 5}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - name: data
    hostPath: {path: /var/lib/web, type: DirectoryOrCreate}
`, name, image)
}

// thousand fills a directory with a thousand manifests that are old enough for their stamps to be trusted.
func thousand(b *testing.B) (dir string, f *source.File) {
	b.Helper()
	dir = b.TempDir()
	for i := range 1000 {
		write(b, fmt.Sprintf("%s/web-%04d.yaml", dir, i), realManifest(fmt.Sprintf("web-%04d", i), "registry.example/web:1"))
	}
	f = newFile(b, dir, func(c *source.FileConfig) { c.Decode = nil })
	if listing := f.Scan(); len(listing.Pods) != 1000 {
		b.Fatalf("%d pods, problems: %v", len(listing.Pods), listing.Problems)
	}
	time.Sleep(2100 * time.Millisecond) // younger stamps are not trusted, and their age cannot be made up
	f.Scan()
	return dir, f
}

func BenchmarkRescan1000Unchanged(b *testing.B) {
	_, f := thousand(b)
	b.ReportAllocs()
	for b.Loop() {
		f.Scan()
	}
}

func BenchmarkRescanOneChanged(b *testing.B) {
	dir, f := thousand(b)
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

// BenchmarkOneAPIEventAmong5000Pods is the way of one watch event from the source to the consumer.
func BenchmarkOneAPIEventAmong5000Pods(b *testing.B) {
	script := newScripted(podid.API)
	mux, err := source.NewMux(source.MuxConfig{Sources: []source.Source{script}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- mux.Run(ctx) }()
	sink := <-script.sink
	pods := make([]*v1.Pod, 5000)
	for i := range pods {
		pods[i] = pod(fmt.Sprintf("web-%d", i), fmt.Sprintf("uid-%d", i), version("1"))
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
			b.Fatal(written(u))
		}
	}
	b.StopTimer()
	cancel()
	<-ended
}

func BenchmarkRelistOf5000UnchangedPods(b *testing.B) {
	script := newScripted(podid.API)
	mux, err := source.NewMux(source.MuxConfig{Sources: []source.Source{script}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- mux.Run(ctx) }()
	sink := <-script.sink
	list := func() []*v1.Pod {
		pods := make([]*v1.Pod, 5000)
		for i := range pods {
			pods[i] = pod(fmt.Sprintf("web-%d", i), fmt.Sprintf("uid-%d", i), version("1"))
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
		marker := pod("marker", fmt.Sprint("marker-", i), version("1"))
		sink.Replace(append(lists[i%2][:5000:5000], marker))
		for {
			if u := <-mux.Updates(); u.Op == source.OpAdd {
				break
			}
		}
	}
	b.StopTimer()
	cancel()
	<-ended
}
