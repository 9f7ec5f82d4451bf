package demo

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/view"
)

// teller moves the story on and shows it.
type teller struct {
	*demo

	display display
	lines   map[string]string // the last line about each pod
	// begun is the number of steps that were shown, explained that of steps whose evidence was.
	begun, explained int
}

// tell does what is due: it begins steps and draws the present state.
func (t *teller) tell(ctx context.Context) {
	now := time.Now()
	t.story.advance(t.progress, now)
	isLeft := t.story.isLeft
	t.act(ctx)
	shown := t.scene(ctx, now)
	if t.begun < shown.number || isLeft != t.story.isLeft {
		t.begun = shown.number
		t.display.begin(shown, now.Sub(t.started))
	}
	if t.explained < shown.number && t.story.isComplete(t.progress) {
		t.explained = shown.number
		t.display.explain(shown)
	}
	t.display.draw(shown, now)
}

func (t *teller) addPod(event watch.Event) {
	t.progress.updatePod(event.Object.(*v1.Pod))
	name, text := podLine(event, time.Now())
	if t.lines[name] != text {
		t.lines[name] = text
		t.display.tell(text, time.Since(t.started))
	}
}

func (t *teller) addRecord(record *history.Record) {
	t.progress.updateRecord(record)
	if text := recordLine(record); text != "" {
		t.display.tell(text, time.Since(t.started))
	}
}

// scene returns what there is to see.
func (t *teller) scene(ctx context.Context, now time.Time) *scene {
	shown := &scene{
		page: t.pageURL(), alerts: t.agent.Alerts.Alerts(), number: t.story.current + 1, total: len(steps), text: t.story.text(), try: t.try(),
	}
	whys := map[string]view.Why{}
	for _, pod := range t.agent.Inspector.Pods(ctx) {
		whys[pod.Metadata.UID] = pod.Why
	}
	for _, pod := range t.agent.Agent.LocalPods() {
		why := whys[string(pod.UID)]
		shown.pods = append(shown.pods, podRow{Row: table.NewRow(pod, now), class: why.Class, why: table.Printable(why.Text)})
	}
	sortRows(shown.pods)
	if evidence := t.story.step().evidence; evidence != nil {
		shown.evidence = evidence(ctx, t.demo)
	}
	return shown
}
