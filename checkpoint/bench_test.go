package checkpoint_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/heraldnode/herald/checkpoint"
)

// statusSize is about what a pod of three containers takes as JSON.
const statusSize = 3500

// payloadOf is as large as the statuses of that many pods, and another one for each round.
func payloadOf(pods, round int) []byte {
	payload := bytes.Repeat([]byte("s"), pods*statusSize)
	copy(payload, fmt.Sprint(round))
	return payload
}

func openBench(b *testing.B) *checkpoint.Dir {
	b.Helper()
	dir, err := checkpoint.Open(b.TempDir(), checkpoint.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { dir.Close() })
	return dir
}

// BenchmarkSave shows that the fsyncs are what a Save costs: the statuses of a whole node cost little more than one.
func BenchmarkSave(b *testing.B) {
	for _, pods := range []int{1, 100, 1000, 5000} {
		b.Run(fmt.Sprintf("%dPods", pods), func(b *testing.B) {
			dir := openBench(b)
			payloads := [][]byte{payloadOf(pods, 0), payloadOf(pods, 1)}
			b.SetBytes(int64(len(payloads[0])))
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if err := dir.Save("status", 1, payloads[n%2]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSaveUnchanged is what each resync costs (SM-87).
func BenchmarkSaveUnchanged(b *testing.B) {
	for _, pods := range []int{1, 100, 5000} {
		b.Run(fmt.Sprintf("%dPods", pods), func(b *testing.B) {
			dir, payload := openBench(b), payloadOf(pods, 0)
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

// BenchmarkSaveAFilePerPod is the road not taken: 100 pods in as many checkpoints.
func BenchmarkSaveAFilePerPod(b *testing.B) {
	dir := openBench(b)
	payloads := [][]byte{payloadOf(1, 0), payloadOf(1, 1)}
	for n := 0; b.Loop(); n++ {
		for pod := range 100 {
			if err := dir.Save(fmt.Sprint(pod), 1, payloads[n%2]); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, pods := range []int{1, 5000} {
		b.Run(fmt.Sprintf("%dPods", pods), func(b *testing.B) {
			dir, payload := openBench(b), payloadOf(pods, 0)
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
