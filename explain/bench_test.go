package explain_test

import (
	"testing"

	"github.com/heraldnode/herald/explain"
)

// maxAllocations is the budget of one call of Pod with the question WhatIsWrong.
const maxAllocations = 30

func BenchmarkPod(b *testing.B) {
	for _, test := range exampleCases() {
		switch test.name {
		case "ready", "crash loop", "readiness probe fails":
			b.Run(test.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					explain.Pod(test.facts, test.question)
				}
			})
		}
	}
}

func TestPod_Allocations(t *testing.T) {
	for _, test := range exampleCases() {
		allocations := testing.AllocsPerRun(10, func() { explain.Pod(test.facts, test.question) })
		if allocations > maxAllocations {
			t.Errorf("%s: got %v allocations, want at most %d", test.name, allocations, maxAllocations)
		}
	}
}
