package arch_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldnode/herald/internal/arch"
)

func TestCheck(t *testing.T) {
	layout := []arch.Package{
		{Path: "podid", Layer: arch.Vocabulary},
		{Path: "derive", Layer: arch.Decisions},
		{Path: "source", Layer: arch.Components},
		{Path: "status", Layer: arch.Components, MayImport: []string{"checkpoint"}},
		{Path: "checkpoint", Layer: arch.Components},
		{Path: "cri", Layer: arch.Components, Modules: []string{"k8s.io/cri-api"}},
		{Path: "agent", Layer: arch.Composition},
	}
	tests := map[string]struct {
		pkg  arch.Loaded
		want string // part of the only message; empty for none
	}{
		"component imports decision":        {pkg: arch.Loaded{Dir: "status", Inside: []string{"derive", "podid"}}},
		"component imports component":       {pkg: arch.Loaded{Dir: "source", Inside: []string{"status"}}, want: "source (components) must not import status"},
		"import listed in MayImport":        {pkg: arch.Loaded{Dir: "status", Inside: []string{"checkpoint"}}},
		"subfolder imports its parent":      {pkg: arch.Loaded{Dir: "source/file", Inside: []string{"source"}}},
		"decision imports component":        {pkg: arch.Loaded{Dir: "derive", Inside: []string{"status"}}, want: "derive (decisions) must not import status"},
		"composition imports components":    {pkg: arch.Loaded{Dir: "agent", Inside: []string{"status", "source", "derive"}}},
		"decision performs I/O":             {pkg: arch.Loaded{Dir: "derive", Outside: []string{"os"}}, want: "perform no effects"},
		"vocabulary imports a library":      {pkg: arch.Loaded{Dir: "podid", Outside: []string{"k8s.io/api/core/v1"}}, want: "needs no libraries"},
		"vocabulary imports apimachinery":   {pkg: arch.Loaded{Dir: "podid", Outside: []string{"k8s.io/apimachinery/pkg/types"}}},
		"forbidden module":                  {pkg: arch.Loaded{Dir: "status", Outside: []string{"k8s.io/kubernetes/pkg/kubelet"}}, want: "never links"},
		"forbidden package":                 {pkg: arch.Loaded{Dir: "status", Outside: []string{"k8s.io/client-go/kubernetes"}}, want: "never links"},
		"restricted module":                 {pkg: arch.Loaded{Dir: "status", Outside: []string{"k8s.io/cri-api/pkg"}}, want: "reserved for other packages"},
		"restricted module listed in entry": {pkg: arch.Loaded{Dir: "cri", Outside: []string{"k8s.io/cri-api/pkg"}}},
		"package without entry":             {pkg: arch.Loaded{Dir: "cache"}, want: "has no entry"},
		"meaningless name":                  {pkg: arch.Loaded{Dir: "source/util"}, want: "meaningless name"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.pkg.Doc = "Package x."
			violations := arch.Check(layout, []arch.Loaded{test.pkg})
			switch {
			case test.want == "" && len(violations) != 0:
				t.Fatalf("got %v, want none", violations)
			case test.want != "" && (len(violations) != 1 || !strings.Contains(violations[0], test.want)):
				t.Fatalf("got %v, want one violation containing %q", violations, test.want)
			}
		})
	}
}

func TestCheck_MissingComment(t *testing.T) {
	violations := arch.Check([]arch.Package{{Path: "podid", Layer: arch.Vocabulary}}, []arch.Loaded{{Dir: "podid"}})
	if len(violations) != 1 || !strings.Contains(violations[0], "no package comment") {
		t.Fatalf("got %v, want a missing package comment", violations)
	}
}

func TestCheckSource(t *testing.T) {
	const clock = "import \"time\"\n\nfunc f() time.Time { return time.Now() }"
	tests := map[string]struct {
		code string
		pure bool
		want string
	}{
		"clock in a decision":      {code: clock, pure: true, want: "x.go:5: time.Now in a pure package"},
		"clock in a component":     {code: clock},
		"goroutine in a decision":  {code: "func f() { go f() }", pure: true, want: "x.go:3: a goroutine"},
		"struct of sixteen fields": {code: "type big struct{ a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p int }", want: "big has 16 fields"},
		"Config of sixteen fields": {code: "type Config struct{ a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p int }"},
		"struct of fifteen fields": {code: "type ok struct{ a, b, c, d, e, f, g, h, i, j, k, l, m, n, o int }", pure: true},
		"duration without clock":   {code: "import \"time\"\n\nconst d = time.Second", pure: true},
		"method named Now":         {code: "type clock struct{}\n\nfunc (clock) Now() int { return 0 }\n\nvar x = clock{}.Now()", pure: true},
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
