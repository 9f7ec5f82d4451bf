package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/podid"
)

// step is a part of the story.
type step struct {
	// text says what happens. Names in it are those of pods and manifests.
	text string
	// act makes it happen. It is called until it succeeds. Nil: it happens by itself.
	act func(ctx context.Context, d *demo) error
	// needs is what has happened when the step is complete. It is shown at least as long as stays.
	needs []milestone
	stays time.Duration
	// evidence returns what the agent says about it, as a command would print it. Nil: nothing.
	evidence func(ctx context.Context, d *demo) []string
	// try are commands for a second terminal. Words in capitals are replaced.
	try []string
}

// steps is the story. With the default times of the pods it takes 35 to 40 seconds.
var steps = []step{
	{
		text:  "Four pods start, from manifests in a folder. There is no API server.",
		needs: []milestone{{"web", 1}, {"slow", 1}, {"job", 1}, {"cart", 1}}, stays: 3 * time.Second,
		try: []string{"HERALD get pods -w -s SERVER"},
	},
	{
		text:  "cart crashes, again and again. Herald says why, and what happens next:",
		needs: []milestone{{"cart", 1}, {"CrashBackOff", 2}}, stays: 6 * time.Second, evidence: explained("cart"),
		try: []string{"HERALD explain cart-demo -s SERVER", "HERALD logs cart-demo -s SERVER"},
	},
	{
		text:  "job is done. slow is still starting, and its startup probe gives it time:",
		needs: []milestone{{"slow", 2}, {"job", 2}}, stays: 3 * time.Second, evidence: explained("slow"),
		try: []string{"HERALD describe pod slow-demo -s SERVER"},
	},
	{
		text: "web fails its readiness probe from now on. An alert fires.",
		act:  func(ctx context.Context, d *demo) error { return d.post(ctx, failPath) }, needs: []milestone{{"web", 2}, {"WebNotReady", 1}},
		stays: 6 * time.Second, evidence: explained("web"), try: []string{"HERALD alerts -s SERVER"},
	},
	{
		text: "web recovers. It was never restarted. The alert is resolved.",
		act:  func(ctx context.Context, d *demo) error { return d.post(ctx, recoverPath) }, needs: []milestone{{"web", 3}, {"WebNotReady", 2}},
		stays: 4 * time.Second, try: []string{"HERALD history pod/web-demo -s SERVER"},
	},
	{
		text: "Somebody corrects cart.yaml. cart starts at once, without a back-off:",
		act:  func(_ context.Context, d *demo) error { return goodEdit.apply(d.dir) }, needs: []milestone{{"cart", 2}},
		stays: 5 * time.Second, evidence: func(_ context.Context, d *demo) []string { return goodEdit.difference(d.dir) },
		try: []string{"HERALD history pod/cart-demo -s SERVER"},
	},
	{
		text: "A broken edit of web.yaml is refused. web keeps running:",
		act:  func(_ context.Context, d *demo) error { return brokenEdit.apply(d.dir) }, needs: []milestone{{brokenEdit.file, 1}},
		stays: 7 * time.Second, evidence: refusal, try: []string{"HERALD sources -s SERVER", "HERALD check FOLDER"},
	},
	{
		text: "The mistake is corrected. No pod was restarted.",
		act:  func(_ context.Context, d *demo) error { return brokenEdit.undo().apply(d.dir) }, needs: []milestone{{brokenEdit.file, 2}},
		stays: 3 * time.Second, try: []string{"HERALD status -s SERVER"},
	},
	{
		text: "That was the story. The pods run until Ctrl-C. It is your turn:",
		try:  []string{"curl -X POST WEB/fail", "edit FOLDER/web.yaml", "HERALD get pods -w -s SERVER"},
	},
}

// story is where the story is.
type story struct {
	current int
	since   time.Time
	isActed bool // the act of the current step was successful
	isLeft  bool // a user's edits took the place of the rest
}

func (s *story) step() *step { return &steps[s.current] }

func (s *story) isTold() bool { return s.current == len(steps)-1 || s.isLeft }

// isComplete reports whether everything that the current step needs has happened.
func (s *story) isComplete(p *progress) bool { return s.isActed && p.has(s.step().needs) }

// advance begins the next step once the current one is complete and was shown long enough. It returns false otherwise.
func (s *story) advance(p *progress, now time.Time) bool {
	if s.isTold() || !s.isComplete(p) || now.Sub(s.since) < s.step().stays {
		return false
	}
	s.current, s.since, s.isActed = s.current+1, now, false
	return true
}

// text returns what happens now.
func (s *story) text() string {
	if s.isLeft {
		return "You changed a manifest that the story was to change. The story ends here; the pods run until Ctrl-C."
	}
	return s.step().text
}

// act makes the current step happen. If a user has edited the manifest, the story ends.
func (d *demo) act(ctx context.Context) {
	if d.story.isActed {
		return
	}
	var err error
	if act := d.story.step().act; act != nil {
		err = act(ctx, d)
	}
	d.story.isActed = err == nil
	d.story.isLeft = errors.Is(err, errEdited)
}

// actTimeout bounds a request to the pod web.
const actTimeout = 2 * time.Second

// post asks the pod web to fail or to recover.
func (d *demo) post(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.webURL+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("POST %s: %s", path, response.Status)
	}
	return errors.Join(err, response.Body.Close())
}

func podName(name string) string { return name + "-" + nodeName }

// explained returns what 'herald explain' prints about a pod, if something is wrong with it.
func explained(name string) func(context.Context, *demo) []string {
	return func(ctx context.Context, d *demo) []string {
		verdict, found := d.agent.Inspector.Explain(ctx, podid.FullName{Namespace: "default", Name: podName(name)}, "")
		if !found || verdict.OK {
			return nil
		}
		text := strings.TrimSuffix(verdict.Text(time.Now()), "\n")
		return append([]string{"$ herald explain " + podName(name)}, strings.Split(text, "\n")...)
	}
}

// refusal returns what the agent says about the manifest that it does not use, and how the pod is meanwhile.
func refusal(ctx context.Context, d *demo) []string {
	lines := []string{"$ herald sources"}
	for _, source := range d.agent.Inspector.Sources() {
		for i := range source.Problems {
			lines = append(lines, "! "+source.Problems[i].Message)
		}
	}
	if len(lines) == 1 {
		return nil
	}
	web, found := d.agent.Inspector.Pod(ctx, podid.FullName{Namespace: "default", Name: podName("web")})
	if found {
		lines = append(lines, "= the last good version runs: "+podName("web")+" "+web.Local.Summary)
	}
	return lines
}

// try returns the commands of the current step as a user types them.
func (d *demo) try() []string {
	names := strings.NewReplacer(
		"HERALD", commandName(), "SERVER", d.listener.Addr().String(), "FOLDER", manifestDir(d.dir), "WEB", d.webURL)
	commands := slices.Clone(d.story.step().try)
	for i := range commands {
		commands[i] = names.Replace(commands[i])
	}
	return commands
}
