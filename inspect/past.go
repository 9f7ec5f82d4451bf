package inspect

import (
	"context"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
)

// left returns how a pod ended that the node does not have any more, or nil.
func (i *Inspector) left(ctx context.Context, name podid.FullName) *explain.Left {
	if i.config.History == nil {
		return nil
	}
	page, _ := i.config.History.Query(ctx, history.Query{ // what could be read counts
		Namespace: name.Namespace, Name: name.Name, Kinds: []history.Kind{history.KindPod}, Limit: 1,
	})
	if len(page.Records) == 0 {
		return nil
	}
	return &explain.Left{At: page.Records[0].Time, Summary: page.Records[0].After}
}

// maxLogRecords limits how many attachments are searched for the last lines.
const maxLogRecords = 50

// lastLines returns the last lines of the newest failed instance of each container.
func (i *Inspector) lastLines(ctx context.Context, pod *v1.Pod) map[string][]string {
	if i.config.History == nil {
		return nil
	}
	query := history.Query{UID: string(pod.UID), Kinds: []history.Kind{history.KindLog}, Limit: maxLogRecords}
	page, _ := i.config.History.Query(ctx, query)
	lines, sameAs := map[string][]string{}, map[string]uint64{}
	for n := range page.Records {
		record := &page.Records[n]
		attachment := record.Attachment
		if attachment == nil || lines[attachment.Container] != nil {
			continue
		}
		seq, isReference := sameAs[attachment.Container]
		switch {
		case isReference && record.Seq != seq:
		case attachment.Lines != "":
			lines[attachment.Container] = strings.Split(strings.TrimRight(attachment.Lines, "\n"), "\n")
		case attachment.SameAs != 0:
			sameAs[attachment.Container] = attachment.SameAs
		default:
			lines[attachment.Container] = []string{}
		}
	}
	return lines
}

// maxSeeds limits how many records of earlier runs are counted.
const maxSeeds = history.MaxLimit

// seedTally counts what happened in the last hour before this agent started.
func (i *Inspector) seedTally(ctx context.Context) {
	if i.config.History == nil {
		return
	}
	started := i.config.Tally.startedAt
	page, _ := i.config.History.Query(ctx, history.Query{
		Kinds: []history.Kind{history.KindPod}, Since: time.Now().Add(-tallyWindow), Until: started, Limit: maxSeeds,
	})
	for n := len(page.Records) - 1; n >= 0; n-- {
		if record := &page.Records[n]; record.Time.Before(started) && record.Before != "" {
			i.config.Tally.seed(record)
		}
	}
}

// seed counts the changes of a record.
func (t *Tally) seed(record *history.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := range record.Changes {
		change := &record.Changes[n]
		if change.Container == "" {
			continue
		}
		isRestart, isFlip := change.Field == transition.FieldRestartCount && isRise(change), change.Field == transition.FieldReady
		wasStopped := change.Exit != nil && change.Exit.StoppedBy != ""
		if !isRestart && !isFlip && !wasStopped {
			continue
		}
		counts := t.talliedLocked(podid.UID(record.UID), change.Container)
		switch {
		case isRestart:
			counts.restarts = appendBounded(counts.restarts, record.Time)
		case isFlip:
			counts.flips = appendBounded(counts.flips, record.Time)
		default:
			counts.stoppedBy, counts.stoppedAt = change.Exit.StoppedBy, record.Time
		}
	}
}

func isRise(change *transition.Change) bool {
	from, _ := strconv.Atoi(change.From)
	to, _ := strconv.Atoi(change.To)
	return to > from
}
