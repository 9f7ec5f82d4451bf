package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/status"
	"github.com/heraldnode/herald/transition"
)

const (
	historyPods = 110
	// stormPods is the number of pods that change in a storm: so many that none of them changes too often.
	stormPods = 1000
	stormRate = 10_000 // transitions per second
)

// HistoryCases returns the cases of the history, which the kubelet does not have. Their values are absolute; times are CPU times
// of this process, because a busy machine changes them less.
func HistoryCases() []Case { return []Case{journalCalls, historyAppend, historyFiles, historyStorm} }

// historyResult returns a row without a kubelet.
func historyResult(name, description, text string, value float64, goal Goal) Result {
	return Result{Name: name, Description: description, Kubelet: "-", Herald: text, Value: value, Goal: goal}
}

// journal passes the versions of a status manager to a history, as nodeagent does.
type journal struct{ log *history.Log }

func (j journal) Accepted(v status.Version) {
	j.log.Accepted(history.Version{
		UID: v.UID, Pod: v.Pod, Before: v.Before, After: v.After, Version: v.Version, Previous: v.Previous,
		Via: transition.Via(v.Via), Time: v.Time, Removed: v.Removed,
	})
}

func (j journal) Acknowledged(uid podid.UID, version uint64, at time.Time) {
	j.log.Acknowledged(uid, version, at)
}

// journalCalls compares a setter of the status manager with and without a history. The writer of the history runs in another
// thread, whose time does not count.
func journalCalls(_ context.Context, env *Environment) (results []Result, err error) {
	env.logf("SetPodStatus with and without a history")
	loop, err := openCrashLoop(filepath.Join(env.ManifestDir, "history-calls"), 0, time.Now())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, loop.stop()) }()
	p := threeContainerPod("web", "u")
	pods := pod.NewManager()
	pods.AddPod(p)
	var sides []func() (float64, error)
	for _, config := range []status.Config{{Pods: pods}, {Pods: pods, Journal: journal{loop.log}}} {
		manager, err := status.New(config)
		if err != nil {
			return nil, fmt.Errorf("create status manager: %w", err)
		}
		statuses := []v1.PodStatus{withRestartCount(runningStatus(), 0), withRestartCount(runningStatus(), 1)}
		do := repeatEach(statuses, func(s v1.PodStatus) { manager.SetPodStatus(p, s) })
		n, err := calibrate(do, env.Profile.CallTime)
		if err != nil {
			return nil, err
		}
		sides = append(sides, func() (float64, error) {
			return loop.timeSetter(do, n)
		})
	}
	took, err := measureRounds(env.Profile.CallRounds, sides...)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("%s with, %s without", formatNanoseconds(median(took[1])), formatNanoseconds(median(took[0])))
	return []Result{historyResult(
		"history_set_changed", "SetPodStatus, changed: with a history, divided by without", text, ratio(took[1], took[0]), AtMost(1.10),
	)}, nil
}

// timeSetter returns the CPU time of a call in its own thread, in nanoseconds. The writer of the history gets time to keep up.
func (c *crashLoop) timeSetter(do repeatFunc, n int) (float64, error) {
	const burst = 1000 // less than what the history keeps in memory without merging
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took time.Duration
	bursts := (n + burst - 1) / burst
	for range bursts {
		start := threadCPUTime()
		if err := do(burst); err != nil {
			return 0, err
		}
		took += threadCPUTime() - start
		for c.metric("pending", "") > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	return float64(took.Nanoseconds()) / float64(bursts*burst), nil
}

// historyAppend measures a transition from Accepted until it is in the file, within one segment.
func historyAppend(ctx context.Context, env *Environment) ([]Result, error) {
	env.logf("append to a history")
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	var times, sizes []float64
	for round := range env.Profile.CallRounds {
		took, size, err := appendOnce(ctx, filepath.Join(env.ManifestDir, fmt.Sprintf("history-append-%d", round)))
		if err != nil {
			return nil, err
		}
		times, sizes = append(times, took), append(sizes, size)
	}
	took, size := median(times), median(sizes)
	return []Result{
		historyResult("history_append_us", "history: CPU time per transition, in us", formatNanoseconds(took*1e3), took, AtMost(6)),
		historyResult("history_raw_bytes", "history: bytes per transition in the active segment", fmt.Sprintf("%.0f", size), size, AtMost(450)),
	}, nil
}

// appendOnce returns the CPU time per transition in microseconds, and its size.
func appendOnce(ctx context.Context, dir string) (microseconds, bytes float64, err error) {
	loop, err := openCrashLoop(dir, historyPods, time.Now())
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, loop.stop()) }()
	if err := loop.accept(ctx, loop.round()); err != nil { // the first versions of pods are larger
		return 0, 0, err
	}
	var versions []history.Version
	for range 30 {
		versions = append(versions, loop.round()...)
	}
	size := loop.metric("bytes", "")
	start := processCPUTime()
	if err := loop.accept(ctx, versions); err != nil {
		return 0, 0, err
	}
	took := processCPUTime() - start
	count := float64(len(versions))
	return float64(took.Microseconds()) / count, (loop.metric("bytes", "") - size) / count, nil
}

// historyFiles measures reading a history of Profile.HistoryBytes.
func historyFiles(ctx context.Context, env *Environment) ([]Result, error) {
	env.logf("read a history of %d MiB", env.Profile.HistoryBytes>>20)
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	dir := filepath.Join(env.ManifestDir, "history-files")
	loop, err := openCrashLoop(dir, historyPods, time.Now().Add(-20*24*time.Hour))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(loop.fill(ctx, env.Profile.HistoryBytes), loop.stop()); err != nil {
		return nil, err
	}
	perTransition, err := sealedBytes(dir)
	if err != nil {
		return nil, err
	}
	var log *history.Log
	reopen := func() (err error) {
		if log != nil {
			if err := log.Close(); err != nil {
				return err
			}
		}
		log, err = history.Open(history.Config{Dir: dir})
		return err
	}
	opened, err := measureReading(env.Profile.CallRounds, reopen)
	if err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	defer log.Close()
	query := func(q history.Query, want int) func() error {
		return func() error {
			page, err := log.Query(ctx, q)
			if err == nil && len(page.Records) != want {
				err = fmt.Errorf("got %d records, want %d", len(page.Records), want)
			}
			return err
		}
	}
	const limit = 100
	last, err := measureReading(10*env.Profile.CallRounds,
		query(history.Query{
			Namespace: "default", Name: crashLoopName(7), Kinds: []history.Kind{history.KindPod}, Limit: limit,
		}, min(limit, loop.rounds)))
	if err != nil {
		return nil, fmt.Errorf("query history: %w", err)
	}
	scan, err := measureReading(1, query(history.Query{Kinds: []history.Kind{history.KindSource}}, 0))
	if err != nil {
		return nil, fmt.Errorf("scan history: %w", err)
	}
	size := fmt.Sprintf("history of %d MiB, %d transitions: ", env.Profile.HistoryBytes>>20, loop.version)
	return []Result{
		historyResult("history_sealed_bytes", "history: bytes per transition in a compressed segment", fmt.Sprintf("%.1f", perTransition),
			perTransition, AtMost(60)),
		historyResult("history_open_ms", size+"open, CPU time in ms", opened.String(), opened.cpu*1e3, AtMost(100)),
		historyResult("history_last100_ms", size+"last 100 records of a pod, CPU time in ms", last.String(), last.cpu*1e3, AtMost(5)),
		historyResult("history_scan_s", size+"scan, CPU time in s", scan.String(), scan.cpu, AtMost(2)),
	}, nil
}

// reading is what an operation took, in seconds.
type reading struct{ cpu, wall float64 }

func (r reading) String() string { return formatSeconds(r.cpu) + " CPU, " + formatSeconds(r.wall) }

// measureReading returns the medians of several runs.
func measureReading(rounds int, do func() error) (reading, error) {
	var cpu, wall []float64
	for range rounds {
		started, startedCPU := time.Now(), processCPUTime()
		if err := do(); err != nil {
			return reading{}, err
		}
		cpu, wall = append(cpu, (processCPUTime()-startedCPU).Seconds()), append(wall, time.Since(started).Seconds())
	}
	return reading{cpu: median(cpu), wall: median(wall)}, nil
}

// sealedBytes returns the size of the compressed segments divided by the number of their records.
func sealedBytes(dir string) (float64, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.log*"))
	if err != nil {
		return 0, err
	}
	slices.Sort(paths)
	var size, records float64
	for i, path := range paths[:max(0, len(paths)-1)] {
		if !strings.HasSuffix(path, ".gz") {
			continue
		}
		first, err := firstSequence(path)
		next, nextErr := firstSequence(paths[i+1])
		info, statErr := os.Stat(path)
		if err := errors.Join(err, nextErr, statErr); err != nil {
			return 0, fmt.Errorf("read segment %s: %w", path, err)
		}
		size, records = size+float64(info.Size()), records+float64(next-first)
	}
	if records == 0 {
		return 0, errors.New("the history has no compressed segment")
	}
	return size / records, nil
}

// historyStorm measures a storm of transitions, and an idle history after it.
func historyStorm(ctx context.Context, env *Environment) (results []Result, err error) {
	env.logf("%d transitions per second for %s", stormRate, env.Profile.HistoryStorm)
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	loop, err := openCrashLoop(filepath.Join(env.ManifestDir, "history-storm"), stormPods, time.Now())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, loop.stop()) }()
	versions := slices.Concat(loop.round(), loop.round(), loop.round())
	if err := loop.accept(ctx, versions); err != nil {
		return nil, err
	}
	live := liveBytes()
	debug.FreeOSMemory()
	before, syncs, records := residentBytes(), loop.metric("syncs_total", ""), loop.metric("records_total", string(history.KindPod))
	started := time.Now()
	peak, count := loop.storm(versions, env.Profile.HistoryStorm)
	took, live := time.Since(started).Seconds(), liveBytes()-live
	shared := float64(count) - (loop.finalRecords() - records)
	rotations := loop.metric("segments", "") - 1 // each ends with a sync of the segment
	// One more was due at the start.
	syncsPerSecond := max(0, loop.metric("syncs_total", "")-syncs-rotations-1) / took
	idle, err := loop.idleSyncs(ctx, env.Profile.HistoryIdle)
	growth := float64(peak-before) / (1 << 20)
	storm := fmt.Sprintf("history: %d transitions, %.0f per second: ", count, float64(count)/took)
	return []Result{
		historyResult("history_storm", storm+"versions without a record of their own", fmt.Sprintf("%.0f", shared), shared, AtMost(0)),
		historyResult("history_storm_rss", storm+"growth of the process at its peak, in MiB",
			fmt.Sprintf("%.1f MiB, live %+.1f MiB", growth, float64(live)/(1<<20)), growth, AtMost(8)),
		historyResult("history_syncs_storm", storm+"syncs per second, besides one per segment", fmt.Sprintf("%.2f", syncsPerSecond),
			syncsPerSecond, AtMost(1)),
		historyResult("history_syncs_idle", fmt.Sprintf("history: syncs in %s without changes", env.Profile.HistoryIdle),
			fmt.Sprintf("%.0f", idle), idle, AtMost(0)),
	}, err
}

// storm accepts the versions over and over, at stormRate, for that long. It returns the largest resident size and the number of
// transitions.
func (c *crashLoop) storm(versions []history.Version, duration time.Duration) (peak int64, count int) {
	const tick = 10 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for started := time.Now(); time.Since(started) < duration; {
		<-ticker.C
		for due := int(time.Since(started).Seconds() * stormRate); count < due; count++ {
			version, i := versions[count%len(versions)], count%len(c.pods)
			c.version++
			version.Before, version.Previous, version.Version, version.Time = c.statuses[i], c.versions[i], c.version, time.Now()
			c.log.Accepted(version)
			c.statuses[i], c.versions[i] = version.After, version.Version
		}
		peak = max(peak, residentBytes())
	}
	return peak, count
}

// finalRecords returns the number of records when no more are written for a while. Versions that share a record are never
// counted, so that there is nothing else to wait for.
func (c *crashLoop) finalRecords() float64 {
	const quietPolls = 30
	last := -1.0
	for quiet := 0; quiet < quietPolls; quiet++ {
		time.Sleep(100 * time.Millisecond)
		if records := c.metric("records_total", string(history.KindPod)); records != last {
			last, quiet = records, 0
		}
	}
	return last
}

// idleSyncs waits until everything is synced, and returns the number of syncs in the time after it.
func (c *crashLoop) idleSyncs(ctx context.Context, duration time.Duration) (float64, error) {
	const settled = 3 * time.Second // records are synced after one
	wait := func(pause time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
			return nil
		}
	}
	if err := errors.Join(c.waitForSealer(ctx), wait(settled)); err != nil {
		return 0, err
	}
	before := c.metric("syncs_total", "")
	err := wait(duration)
	return c.metric("syncs_total", "") - before, err
}

// liveBytes returns the size of the heap without garbage.
func liveBytes() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// residentBytes returns the resident size of this process, or 0 if it is not known.
func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64) // 0 is not known
	return pages * int64(os.Getpagesize())
}
