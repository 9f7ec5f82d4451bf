package bench

import (
	"fmt"
	"runtime"
	"time"

	v1 "k8s.io/api/core/v1"
)

// call is something that both sides can do over and over.
type call struct {
	name, what      string
	kubelet, herald repeat
	goal            Goal
}

// repeat does it n times.
type repeat func(n int) error

// cost is what doing it once takes.
type cost struct {
	nanoseconds float64
	allocs      int
}

// compare measures calls on both sides, and returns a row for each.
func compare(lab *Lab, calls []call) ([]Row, error) {
	var rows []Row
	for _, c := range calls {
		lab.say("%s", c.what)
		row, _, err := compareOne(lab.Effort, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.what, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// compareOne also returns how often each side allocates, the kubelet first.
func compareOne(effort Effort, c call) (Row, [2]int, error) {
	var allocs [2]int
	sides := make([]func() (float64, error), 2)
	for i, do := range []repeat{c.kubelet, c.herald} {
		n, err := fitting(do, effort.CallTime)
		if err != nil {
			return Row{}, allocs, err
		}
		sides[i] = func() (float64, error) {
			once, err := timed(do, n)
			allocs[i] = once.allocs
			return once.nanoseconds, err
		}
	}
	took, err := inTurns(effort.Calls, sides...)
	if err != nil {
		return Row{}, allocs, err
	}
	return Row{
		Name: c.name, What: c.what, Kubelet: duration(median(took[0])), Herald: duration(median(took[1])),
		Value: ratio(took[0], took[1]), Goal: c.goal,
	}, allocs, nil
}

// fitting is how often it can be done in about that time. Finding out also warms up.
func fitting(do repeat, budget time.Duration) (int, error) {
	for n := 1; ; n *= 4 {
		once, err := timed(do, n)
		if err != nil {
			return 0, err
		}
		if took := once.nanoseconds * float64(n); took > float64(budget)/8 {
			return max(1, int(float64(budget)/once.nanoseconds)), nil
		}
	}
}

func timed(do repeat, n int) (cost, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	err := do(n)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	return cost{
		nanoseconds: float64(took.Nanoseconds()) / float64(n), allocs: int(after.Mallocs-before.Mallocs) / n,
	}, err
}

// each does it for one item after the other, round and round.
func each[T any](items []T, do func(T)) repeat {
	return func(n int) error {
		for i := range n {
			do(items[i%len(items)])
		}
		return nil
	}
}

// loop tells what it does the number of the turn.
func loop(do func(i int)) repeat {
	return func(n int) error {
		for i := range n {
			do(i)
		}
		return nil
	}
}

// keep makes the compiler believe that the answer matters.
func keep(p *v1.Pod, found bool) {
	runtime.KeepAlive(p)
	runtime.KeepAlive(found)
}
