package expression_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/expression"
)

// grammar draws expressions that the type checker accepts. containers has the variables of type container.
type grammar struct {
	t          *rapid.T
	containers []string
}

func (g *grammar) pick(choices ...string) string {
	return rapid.SampledFrom(choices).Draw(g.t, "choice")
}

func (g *grammar) boolean(depth int) string {
	if depth <= 0 {
		return g.pick("pod.ready", "container.started", "node.ready", "node.pressure('Disk')", "true", "older(pod, '1h')", "pod.overdue")
	}
	depth--
	switch rapid.IntRange(0, 10).Draw(g.t, "boolean") {
	case 0:
		return fmt.Sprintf("(%s && %s)", g.boolean(depth), g.boolean(depth))
	case 1:
		return fmt.Sprintf("(%s || %s)", g.boolean(depth), g.boolean(depth))
	case 2:
		return "!(" + g.boolean(depth) + ")"
	case 3:
		return fmt.Sprintf("(%s ? %s : %s)", g.boolean(depth), g.boolean(depth), g.boolean(depth))
	case 4:
		return fmt.Sprintf("(%s %s %s)", g.number(depth), g.pick("<", ">=", "==", "!="), g.number(depth))
	case 5:
		return fmt.Sprintf("(%s %s %s)", g.text(depth), g.pick("==", "!=", "<"), g.text(depth))
	case 6:
		return fmt.Sprintf("%s.%s(%s)", g.text(depth), g.pick("contains", "startsWith", "endsWith", "matches"), g.text(depth))
	case 7:
		return fmt.Sprintf("(%s in [%s, %s])", g.text(depth), g.text(depth), g.text(depth))
	case 8:
		return fmt.Sprintf("%s.matches('%s')", g.text(depth), g.pick("a+", "^(a|b)*$", "(a*)*b", ".*x"))
	default:
		if len(g.containers) > 2 {
			return g.boolean(depth)
		}
		name := fmt.Sprintf("c%d", len(g.containers))
		g.containers = append(g.containers, name)
		body := g.boolean(depth)
		g.containers = g.containers[:len(g.containers)-1]
		return fmt.Sprintf("pod.containers.%s(%s, %s)", g.pick("exists", "all", "exists_one"), name, body)
	}
}

func (g *grammar) text(depth int) string {
	c := g.pick(append([]string{"container"}, g.containers...)...)
	if depth <= 0 {
		return g.pick("pod.name", "pod.label('x')", "pod.annotation('x')", c+".name", c+".image", c+".reason", c+".message", "node.name", "'abc'")
	}
	return g.pick(
		fmt.Sprintf("(%s + %s)", g.text(depth-1), g.text(depth-1)), "string("+g.number(depth-1)+")", g.text(depth-1),
		fmt.Sprintf("pod.containers.map(m, m.name + %s)[0]", g.text(0)),
	)
}

func (g *grammar) number(depth int) string {
	c := g.pick(append([]string{"container"}, g.containers...)...)
	if depth <= 0 {
		return g.pick("pod.restarts", "1", c+".restarts", c+".exit_code", "node.cert_days", c+".restarted('1h')", c+".ended('Error', '1h')",
			"pod.flipped('Ready', '1h')", "node.count('clock', '1h')")
	}
	return g.pick(
		fmt.Sprintf("(%s + %s)", g.number(depth-1), g.number(depth-1)), "size("+g.text(depth-1)+")", g.number(depth-1),
		"pod.containers.filter(f, "+g.boolean(depth-1)+").size()",
	)
}

// TestA8_Estimate checks that no expression costs more than was estimated when it was compiled.
func TestA8_Estimate(t *testing.T) {
	environment := newRuleEnvironment(t)
	large := largePod()
	inputs := []expression.RuleInput{
		{Now: now, Pod: newLoadedPod(), Container: "web", Node: loadedNode(), Recent: &recent.Counter{}},
		{Now: now, Pod: large, Container: large.Spec.Containers[0].Name, Node: loadedNode(), Recent: &recent.Counter{}},
	}
	compiledCount, highest := 0, 0.
	rapid.Check(t, func(t *rapid.T) {
		text := (&grammar{t: t}).boolean(rapid.IntRange(0, 4).Draw(t, "depth"))
		compiled, errs := environment.Compile(text, expression.Bool)
		for _, err := range errs {
			if !strings.Contains(err.Message, "units") && !strings.Contains(err.Message, "code point size") {
				t.Fatalf("%s: %v", text, err)
			}
		}
		if len(errs) > 0 {
			return
		}
		compiledCount++
		for i, in := range inputs {
			got := compiled.Eval(in)
			highest = max(highest, float64(got.Cost)/float64(max(1, compiled.MaxCost())))
			if got.Cost > compiled.MaxCost() {
				t.Errorf("%s: input %d: cost %d, estimated %d", text, i, got.Cost, compiled.MaxCost())
			}
		}
	})
	t.Logf("%d expressions were compiled; the costliest took %.0f%% of its estimate", compiledCount, 100*highest)
	if compiledCount == 0 {
		t.Error("no expression was compiled")
	}
}
