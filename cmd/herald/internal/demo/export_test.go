package demo

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/history"
)

// Fit returns the lines of a terminal with that many rows.
func Fit(rows int, sections ...[]string) []string {
	var all [][]line
	for _, texts := range sections {
		var section []line
		for _, text := range texts {
			section = append(section, line{{text, plain}})
		}
		all = append(all, section)
	}
	var fitted []string
	for _, l := range fit(all, rows) {
		fitted = append(fitted, l.render(false))
	}
	return fitted
}

// Wrap breaks a text.
func Wrap(text string, columns int, indent string) []string { return wrap(text, columns, indent) }

// StepCount is the number of steps of the story.
const StepCount = 9

// ApplyBrokenEdit breaks the manifest of web.
func ApplyBrokenEdit(dir string) error { return brokenEdit.apply(dir) }

// ErrEdited reports that a manifest was edited.
var ErrEdited = errEdited

// Disturbance returns what the demo says if web is like this while its manifest is refused.
func Disturbance(before, after types.UID, restarts int32) string {
	p := newProgress()
	pod := func(uid types.UID, restarts int32) *v1.Pod {
		pod := &v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{RestartCount: restarts}}}}
		pod.Name, pod.UID = podName("web"), uid
		return pod
	}
	p.updatePod(pod(before, 0))
	p.updateRecord(&history.Record{Source: &history.SourceProblem{Location: "/manifests/" + brokenEdit.file}})
	p.updatePod(pod(after, restarts))
	return p.disturbed
}

// HeraldCommands returns the arguments of the commands of herald that the story tells users to try. SERVER and FOLDER are to be replaced.
func HeraldCommands() (commands []string) {
	for i := range steps {
		for _, command := range steps[i].try {
			if arguments, isHerald := strings.CutPrefix(command, "HERALD "); isHerald {
				commands = append(commands, arguments)
			}
		}
	}
	return commands
}
