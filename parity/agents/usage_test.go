package agents_test

import (
	"os"
	"testing"
	"time"

	"github.com/heraldnode/herald/parity/agents"
)

func TestParseStat(t *testing.T) {
	const fields = " S 1 77 77 0 -1 4194560 100 200 0 0 150 25 9 9 20 0 12 0 5000 1000000 300"
	cases := map[string]struct {
		stat string
		want time.Duration // 0: an error
	}{
		"plain name":             {"77 (kubelet)" + fields, 1750 * time.Millisecond},
		"spaces and parentheses": {"77 (a) (b 1 2 3)" + fields, 1750 * time.Millisecond},
		"too few fields":         {"77 (kubelet) S 1 77", 0},
		"no fields":              {"", 0},
		"time not a number":      {"77 (kubelet) S 1 77 77 0 -1 4194560 100 200 0 0 many 25 9 9", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := agents.ParseStat(tc.stat)
			if got != tc.want || (err == nil) != (tc.want > 0) {
				t.Errorf("got %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func TestParseStatus(t *testing.T) {
	cases := map[string]struct {
		status string
		want   int64 // 0: an error
	}{
		"other fields":   {"Name:\tVmRSS:\nVmHWM:\t  200 kB\nVmRSS:\t  100 kB\nRssAnon:\t 50 kB\n", 100 << 10},
		"exited process": {"Name:\tkubelet\nState:\tZ (zombie)\n", 0},
		"other unit":     {"VmRSS:\t 100 MB\n", 0},
		"not a number":   {"VmRSS:\t many kB\n", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := agents.ParseStatus(tc.status)
			if got != tc.want || (err == nil) != (tc.want > 0) {
				t.Errorf("got %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func TestProcessUsage(t *testing.T) {
	if usage, err := agents.ProcessUsage(os.Getpid()); err != nil || usage.ResidentBytes < 1<<20 {
		t.Errorf("own process: got %+v, %v; want at least 1 MiB", usage, err)
	}
	if usage, err := agents.ProcessUsage(-1); err == nil {
		t.Errorf("PID -1: got %+v, want an error", usage)
	}
}
