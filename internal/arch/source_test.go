package arch_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldnode/herald/internal/arch"
)

func TestCheckSource(t *testing.T) {
	const clock = "import \"time\"\n\nfunc f() time.Time { return time.Now() }"
	tests := map[string]struct {
		code string
		pure bool
		want string
	}{
		"a clock in a decision":         {code: clock, pure: true, want: "x.go:5: time.Now in a pure package"},
		"a clock in a component":        {code: clock},
		"a goroutine in a decision":     {code: "func f() { go f() }", pure: true, want: "x.go:3: a goroutine"},
		"a struct of sixteen fields":    {code: "type big struct{ a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p int }", want: "big has 16 fields"},
		"a Config may have many fields": {code: "type Config struct{ a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p int }"},
		"fifteen fields are still fine": {code: "type ok struct{ a, b, c, d, e, f, g, h, i, j, k, l, m, n, o int }", pure: true},
		"a duration needs no clock":     {code: "import \"time\"\n\nconst d = time.Second", pure: true},
		"a method that is called Now()": {code: "type clock struct{}\n\nfunc (clock) Now() int { return 0 }\n\nvar x = clock{}.Now()", pure: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "x.go")
			if err := os.WriteFile(file, []byte("package x\n\n"+test.code+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			violations, err := arch.CheckSource(file, test.pure)
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(violations, "\n"); (test.want == "") != (all == "") || !strings.Contains(all, test.want) {
				t.Fatalf("got %q, want %q", all, test.want)
			}
		})
	}
}
