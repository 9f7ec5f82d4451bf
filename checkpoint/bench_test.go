package checkpoint_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/heraldnode/herald/checkpoint"
)

// statusSize is the approximate size in JSON of the status of a pod with three containers.
const statusSize = 3500

// newPayload returns a payload of the size of that many statuses. Payloads of different rounds differ.
func newPayload(pods, round int) []byte {
	payload := bytes.Repeat([]byte("s"), pods*statusSize)
	copy(payload, fmt.Sprint(round))
	return payload
}

func openBenchDir(b *testing.B) *checkpoint.Dir {
	b.Helper()
	dir, err := checkpoint.Open(b.TempDir(), checkpoint.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { dir.Close() })
	return dir
}

// BenchmarkSave shows that the fsyncs dominate: saving the statuses of a whole node costs little more than saving one.
func BenchmarkSave(b *testing.B) {
	for _, pods := range []int{1, 100, 1000, 5000} {
		b.Run(fmt.Sprintf("%dPods", pods), func(b *testing.B) {
			dir := openBenchDir(b)
			payloads := [][]byte{newPayload(pods, 0), newPayload(pods, 1)}
			b.SetBytes(int64(len(payloads[0])))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := dir.Save("status", 1, payloads[i%2]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSaveUnchanged measures the cost of a resync (SM-87).
func BenchmarkSaveUnchanged(b *testing.B) {
	for _, pods := range []int{1, 100, 5000} {
		b.Run(fmt.Sprintf("%dPods", pods), func(b *testing.B) {
			dir, payload := openBenchDir(b), newPayload(pods, 0)
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if err := dir.Save("status", 1, payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSaveFilePerPod measures the alternative of one checkpoint per pod, for 100 pods.
func BenchmarkSaveFilePerPod(b *testing.B) {
	dir := openBenchDir(b)
	payloads := [][]byte{newPayload(1, 0), newPayload(1, 1)}
	for i := 0; b.Loop(); i++ {
		for pod := range 100 {
			if err := dir.Save(fmt.Sprint(pod), 1, payloads[i%2]); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, pods := range []int{1, 5000} {
		b.Run(fmt.Sprintf("%dPods", pods), func(b *testing.B) {
			dir, payload := openBenchDir(b), newPayload(pods, 0)
			if err := dir.Save("status", 1, payload); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := dir.Load("status"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
