package history

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
)

const (
	attachmentWorkers     = 2
	maxAttachmentRequests = 64
	// attachmentPeriod is the least time between two attachments of one container.
	attachmentPeriod = 30 * time.Second
	// attachmentTimeout bounds the reading of one log.
	attachmentTimeout = 5 * time.Second
	// attachmentShare is the part of the disk that log records may use.
	attachmentShare = 4
)

// attachmentRequest asks for the last lines of a failed instance.
type attachmentRequest struct {
	log        LogRequest
	ref        PodRef
	attachment Attachment
}

// attachmentResult is an attachment that is ready to be written.
type attachmentResult struct {
	ref        PodRef
	attachment Attachment
}

// attached is the last attachment of a container.
type attached struct {
	at   time.Time
	hash uint64 // of the lines
	seq  uint64 // of the record that has them; 0 if there is none yet
}

// isFailure reports whether the instance failed: it ended with an error by itself, or a probe ended it. An instance that the
// agent stopped for another reason did not fail, whatever its exit code.
func isFailure(exit *transition.Exit) bool {
	switch exit.StoppedBy {
	case "":
		return exit.Code != 0 || exit.Signal != 0
	case "LivenessProbe", "StartupProbe":
		return true
	default:
		return false
	}
}

// requestAttachments asks for the lines of the containers that failed. The record does not wait for them.
func (w *writer) requestAttachments(state *podState, v *Version, changes []transition.Change, stops map[int]string) {
	for i := range changes {
		change := &changes[i]
		if change.Exit == nil || !isFailure(change.Exit) {
			continue
		}
		last := state.attached[change.Container]
		if !last.at.IsZero() && v.Time.Sub(last.at) < attachmentPeriod {
			w.log.metrics.logsTruncated.Inc()
			continue
		}
		if state.attached == nil {
			state.attached = map[string]attached{}
		}
		last.at = v.Time
		state.attached[change.Container] = last
		request := w.newAttachmentRequest(state, v, change, stops[i])
		select {
		case w.log.requests <- request:
		default: // many containers fail at once
			request.attachment.Omitted = "too many containers failed at the same time"
			w.log.metrics.logsTruncated.Inc()
			w.log.journal.addAttachment(attachmentResult{request.ref, request.attachment})
		}
	}
}

func (w *writer) newAttachmentRequest(state *podState, v *Version, change *transition.Change, stopMessage string) attachmentRequest {
	attachment := Attachment{
		Of: state.seq, Container: change.Container, Attempt: change.Exit.Attempt,
		Context: ExitContext{
			Code: change.Exit.Code, Reason: change.Reason, Message: change.Message, RanMs: change.Exit.RanMs,
			StoppedBy: change.Exit.StoppedBy, StopMessage: stopMessage,
			NodeMemoryAvailableBytes: w.log.config.MemoryAvailable(),
		},
	}
	for _, statuses := range [...][]v1.ContainerStatus{
		v.After.ContainerStatuses, v.After.InitContainerStatuses, v.After.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			if statuses[i].Name == change.Container {
				attachment.Context.RestartCount = statuses[i].RestartCount
				attachment.Context.Image, attachment.Context.ImageID = statuses[i].Image, statuses[i].ImageID
			}
		}
	}
	for _, containers := range [...][]v1.Container{v.Pod.Spec.Containers, v.Pod.Spec.InitContainers} {
		for i := range containers {
			if containers[i].Name == change.Container {
				attachment.Context.MemoryLimitBytes = containers[i].Resources.Limits.Memory().Value()
			}
		}
	}
	return attachmentRequest{
		log: LogRequest{
			Pod: v.Pod, Container: change.Container, Attempt: change.Exit.Attempt,
			Lines: w.log.config.LogLines, Bytes: w.log.config.LogBytes,
		},
		ref: state.PodRef, attachment: attachment,
	}
}

// runAttachments reads logs until ctx ends.
func (l *Log) runAttachments(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case request := <-l.requests:
			l.readLines(ctx, &request)
			l.journal.addAttachment(attachmentResult{request.ref, request.attachment})
		}
	}
}

func (l *Log) readLines(ctx context.Context, request *attachmentRequest) {
	attachment := &request.attachment
	switch {
	case l.config.ReadLog == nil || l.config.LogLines < 0:
		attachment.Omitted = "not configured"
		return
	case l.store.logBytes()+int64(l.config.LogBytes) > l.store.limits.maxDisk/attachmentShare:
		attachment.Omitted = "the lines of failed containers use their part of the disk"
		l.metrics.logsTruncated.Inc()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, attachmentTimeout)
	defer cancel()
	lines, err := l.config.ReadLog(ctx, request.log)
	if err != nil {
		attachment.Omitted = "read log: " + err.Error()
		return
	}
	attachment.Lines = lastLines(lines, l.config.LogLines, l.config.LogBytes)
	attachment.LineCount = countLines(attachment.Lines)
}

// lastLines returns the last lines, without a final newline.
func lastLines(text string, lines, bytes int) string {
	text = strings.ToValidUTF8(strings.TrimRight(text, "\n"), "\ufffd")
	if len(text) > bytes {
		text = strings.ToValidUTF8(text[len(text)-bytes:], "")
	}
	for end, n := len(text), 0; end > 0; n++ {
		end = strings.LastIndexByte(text[:end], '\n')
		if n+1 == lines {
			return text[end+1:]
		}
	}
	return text
}

func countLines(text string) int {
	if text == "" {
		return 0
	}
	return strings.Count(text, "\n") + 1
}

// addAttachment writes a log record. Lines that equal those of the container's last record are not repeated.
func (w *writer) addAttachment(result attachmentResult, now time.Time) {
	attachment := result.attachment
	state := w.pods[podid.UID(result.ref.UID)]
	sum := uint64(len(attachment.Lines))<<32 | uint64(fnv(fnvOffset, attachment.Lines))
	isSame := false
	if state != nil && attachment.Lines != "" {
		if last := state.attached[attachment.Container]; last.seq != 0 && last.hash == sum {
			attachment.SameAs, attachment.Lines, isSame = last.seq, "", true
		}
	}
	hasLines := attachment.Lines != ""
	seq := w.add(now, &Record{Kind: KindLog, PodRef: result.ref, Attachment: &attachment})
	if state != nil && hasLines && !isSame {
		if state.attached == nil {
			state.attached = map[string]attached{}
		}
		last := state.attached[attachment.Container]
		last.hash, last.seq = sum, seq
		state.attached[attachment.Container] = last
	}
}
