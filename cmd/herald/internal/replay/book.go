package replay

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heraldnode/herald/alert/recent"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/view"
)

// Agent is asked for the history. *client.Client implements it.
type Agent interface {
	History(ctx context.Context, parameters url.Values) (server.HistoryList, error)
	PodViews(ctx context.Context, parameters url.Values) (view.PodViewList, error)
	Node(ctx context.Context) (view.NodeView, error)
}

// Book is what an agent knows about a time.
type Book struct {
	Since, Until time.Time
	// Records are those of pods, of the node, and of alerts, oldest first. They begin before Since as far as windows and the states of
	// pods at that time need it.
	Records []history.Record
	// Pods are those that the node has now, by UID.
	Pods map[string]view.PodView
	Node view.NodeView
}

// kinds are the records that are needed.
var kinds = []string{string(history.KindPod), string(history.KindNode), string(history.KindAlert)}

// Read reads the history since a time from an agent.
func Read(ctx context.Context, agent Agent, since, now time.Time) (*Book, error) {
	b := &Book{Since: since, Until: now, Pods: map[string]view.PodView{}}
	var err error
	if b.Node, err = agent.Node(ctx); err != nil {
		return nil, err
	}
	list, err := agent.PodViews(ctx, url.Values{"load": {"true"}})
	if err != nil {
		return nil, err
	}
	for _, pod := range list.Items {
		b.Pods[pod.Metadata.UID] = pod
	}
	records, err := readPages(ctx, agent, url.Values{
		"kind": {strings.Join(kinds, ",")}, "since": {since.Add(-recent.MaxWindow).UTC().Format(time.RFC3339Nano)},
	})
	if err != nil {
		return nil, err
	}
	older, err := readBeginnings(ctx, agent, b.firstRecords(records))
	if err != nil {
		return nil, err
	}
	b.Records = append(records, older...)
	slices.SortFunc(b.Records, func(x, y history.Record) int {
		if x.Seq < y.Seq {
			return -1
		}
		return 1
	})
	return b, nil
}

// readPages reads all pages of a query.
func readPages(ctx context.Context, agent Agent, parameters url.Values) ([]history.Record, error) {
	parameters.Set("limit", strconv.Itoa(history.MaxLimit))
	var records []history.Record
	for {
		page, err := agent.History(ctx, parameters)
		if err != nil {
			return nil, fmt.Errorf("read the history: %w", err)
		}
		records = append(records, page.Items...)
		if page.Continue == "" {
			return records, nil
		}
		parameters.Set("cursor", page.Continue)
	}
}

// firstRecords returns the first record of each pod, 0 if there is none, for those whose beginning is before the records.
func (b *Book) firstRecords(records []history.Record) map[string]uint64 {
	first := map[string]uint64{}
	for uid := range b.Pods {
		first[uid] = 0
	}
	for i := range records { // newest first
		if records[i].Kind == history.KindPod {
			first[records[i].UID] = records[i].Seq
			if records[i].Prev == 0 {
				first[records[i].UID] = noSeq
			}
		}
	}
	maps.DeleteFunc(first, func(_ string, seq uint64) bool { return seq == noSeq })
	return first
}

// noSeq is no sequence number.
const noSeq = ^uint64(0)

// readBeginnings reads the records of pods before those that are known.
func readBeginnings(ctx context.Context, agent Agent, first map[string]uint64) ([]history.Record, error) {
	var older []history.Record
	for _, uid := range slices.Sorted(maps.Keys(first)) {
		parameters := url.Values{"kind": {string(history.KindPod)}, "uid": {uid}}
		if first[uid] != 0 {
			parameters.Set("cursor", strconv.FormatUint(first[uid], 10))
		}
		records, err := readPages(ctx, agent, parameters)
		if err != nil {
			return nil, err
		}
		older = append(older, records...)
	}
	return older, nil
}
