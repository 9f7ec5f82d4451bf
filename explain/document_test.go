package explain_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldnode/herald/explain"
)

const documentIntroduction = `# Why a pod is as it is

` + "`herald explain pod NAME`" + ` (or ` + "`why`" + `) and ` + "`/herald/v1/explain/NAMESPACE/NAME`" + ` answer why a pod is not Ready, not Running, not
deleted, or restarting. The answer is the first match of a decision tree over what the node knows: the pod's spec and status, its worker,
its probes, the container runtime, the API server's copy, and the history. It never contradicts the pod's status, and does not claim
what is not known.

` + "```" + `
%s` + "```" + `

| line | meaning |
| --- | --- |
| ` + "`!`" + ` | the answer |
| ` + "`<`" + ` | a reason, the nearest one first, with the rule of [behaviour.md](behaviour.md) or [node-rules.md](node-rules.md) that was applied |
| ` + "`>`" + ` | the next step that happens by itself, when, and who takes it |
| ` + "`=`" + ` | what would change it |
| ` + "`\\|`" + ` | the last lines of the container |

## Questions

| question | ` + "`ok`" + ` is true if |
| --- | --- |
| none | the class of the code is healthy or ended |
| ` + "`Ready`" + ` | the condition Ready of the local status is True |
| ` + "`Running`" + ` | the phase of the local status is Running |
| ` + "`Deleted`" + ` | the node does not have the pod |
| ` + "`Restarting`" + ` | no container restarted in the last hour |

` + "`final`" + ` is true if nothing changes the answer without somebody's doing: ` + "`herald wait`" + ` then ends at once.

## Codes

The classes are healthy, ended (the pod has ended, or ends as it should), progress (a step is under way that usually ends by itself) and
problem. New codes may be added. Some are the kubelet's waiting reasons, with the same meaning.

`

// TestDocument verifies that docs/explain.md lists all codes.
func TestDocument(t *testing.T) {
	var example string
	for _, test := range exampleCases() {
		if test.name == "crash loop" {
			example = explain.Pod(test.facts, test.question).Text(now)
		}
	}
	meanings := map[string]string{}
	for _, code := range declaredCodes(t) {
		meanings[code.value] = code.meaning
	}
	var out strings.Builder
	fmt.Fprintf(&out, documentIntroduction, "$ herald explain pod cart-n1 -n shop\n"+example)
	out.WriteString("| code | class | meaning | rule | next | remedy |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, code := range explain.Codes() {
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s | %s |\n",
			code.Name, code.Class, strings.TrimSuffix(meanings[code.Name], "."), code.Rule, code.Next, code.Remedy)
	}
	compareGolden(t, filepath.Join("..", "docs", "explain.md"), out.String())
}
