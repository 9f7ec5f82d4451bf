package agents_test

import (
	"os"
	"testing"
	"time"

	"github.com/heraldnode/herald/parity/agents"
)

func TestTheProcessorTimeIsReadWhateverTheProgramIsCalled(t *testing.T) {
	const after = " S 1 77 77 0 -1 4194560 100 200 0 0 150 25 9 9 20 0 12 0 5000 1000000 300"
	cases := map[string]struct {
		stat string
		want time.Duration // 0: an error
	}{
		"a plain name":             {"77 (kubelet)" + after, 1750 * time.Millisecond},
		"spaces and parentheses":   {"77 (a) (b 1 2 3)" + after, 1750 * time.Millisecond},
		"too few fields":           {"77 (kubelet) S 1 77", 0},
		"no fields":                {"", 0},
		"a time that is no number": {"77 (kubelet) S 1 77 77 0 -1 4194560 100 200 0 0 many 25 9 9", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := agents.ParseStat(tc.stat)
			if got != tc.want || (err == nil) != (tc.want > 0) {
				t.Errorf("%v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func TestTheResidentMemoryIsReadInBytes(t *testing.T) {
	cases := map[string]struct {
		status string
		want   int64 // 0: an error
	}{
		"among others":           {"Name:\tVmRSS:\nVmHWM:\t  200 kB\nVmRSS:\t  100 kB\nRssAnon:\t 50 kB\n", 100 << 10},
		"an ended process":       {"Name:\tkubelet\nState:\tZ (zombie)\n", 0},
		"another unit":           {"VmRSS:\t 100 MB\n", 0},
		"something of no number": {"VmRSS:\t many kB\n", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := agents.ParseStatus(tc.status)
			if got != tc.want || (err == nil) != (tc.want > 0) {
				t.Errorf("%v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func TestAProcessThatIsThereHasAUsage(t *testing.T) {
	if used, err := agents.UsageOf(os.Getpid()); err != nil || used.Resident < 1<<20 {
		t.Errorf("this one: %+v, %v", used, err)
	}
	if used, err := agents.UsageOf(-1); err == nil {
		t.Errorf("one that cannot be: %+v", used)
	}
}
