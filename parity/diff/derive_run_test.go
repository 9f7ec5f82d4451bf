package diff_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var (
	deriveSeed  = flag.Uint64("derive.seed", 0, "the first case that derive and the kubelet are compared on; 0: any")
	deriveCases = flag.Int("derive.cases", 12_000, "how many cases each comparison of derive with the kubelet has")
)

// comparison gives cases of one kind to both sides.
type comparison struct {
	// differs draws the case of that seed and says how the answers differ, on the smallest case that shows it, or "".
	differs func(seed uint64) string
}

// compared makes a comparison. disagreement is called with one case many times and must leave it as it is.
func compared[C any](draw func(*drawer) C, disagreement func(C) string) comparison {
	return comparison{func(seed uint64) string {
		c := draw(newDrawer(seed))
		if disagreement(c) == "" {
			return ""
		}
		c = shrink(c, func(smaller C) bool { return disagreement(smaller) != "" })
		text, err := yaml.Marshal(c)
		if err != nil {
			text = fmt.Appendf(nil, "%+v", c)
		}
		return fmt.Sprintf("%s\n%s", text, disagreement(c))
	}}
}

// run goes through -derive.cases cases. Each has a seed of its own, so that a difference is found again at once.
func (c comparison) run(t *testing.T) {
	first := *deriveSeed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	for i := range uint64(*deriveCases) {
		if differs := c.differs(first + i); differs != "" {
			t.Fatalf("again with: go test ./diff -run '^%s$' -derive.cases=1 -derive.seed=%d\n%s", t.Name(), first+i, differs)
		}
	}
}

// FuzzDerive goes on with all comparisons for as long as it is let.
func FuzzDerive(f *testing.F) {
	all := []comparison{
		comparePhase, compareConditions, compareTransition, compareEqual, compareNormal, compareMerge, compareContinue,
		compareTerminate, compareResize, compareStatus,
	}
	for i := range all {
		f.Add(uint8(i), uint64(1))
	}
	f.Fuzz(func(t *testing.T, which uint8, seed uint64) {
		if differs := all[int(which)%len(all)].differs(seed); differs != "" {
			t.Fatal(differs)
		}
	})
}

// drawer draws cases. Equal seeds draw equal cases.
type drawer struct{ *rand.Rand }

func newDrawer(seed uint64) *drawer { return &drawer{rand.New(rand.NewPCG(seed, 0))} }

func (d *drawer) chance(percent int) bool { return d.IntN(100) < percent }

func oneOf[T any](d *drawer, values ...T) T { return values[d.IntN(len(values))] }

// unlike is what a comparison says of two answers.
func unlike(kubelet, herald any) string {
	theirs, ours := written(kubelet), written(herald)
	return fmt.Sprintf("kubelet: %s\n\nHerald: %s\n\nkubelet (-), Herald (+):\n%s", theirs, ours, cmp.Diff(theirs, ours))
}

func written(answer any) string {
	switch answer := answer.(type) {
	case error:
		return answer.Error()
	case string, bool:
		return fmt.Sprint(answer)
	}
	text, err := yaml.Marshal(answer)
	if err != nil {
		return fmt.Sprintf("%+v", answer)
	}
	return "\n" + strings.TrimSpace(string(text))
}
