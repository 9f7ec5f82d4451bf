package arch_test

import (
	"strings"
	"testing"

	"github.com/heraldnode/herald/internal/arch"
)

func TestEveryKindOfBreachIsFound(t *testing.T) {
	rooms := []arch.Room{
		{Path: "podid", Layer: arch.Vocabulary},
		{Path: "derive", Layer: arch.Decisions},
		{Path: "source", Layer: arch.Stages},
		{Path: "status", Layer: arch.Stages, MayImport: []string{"checkpoint"}},
		{Path: "checkpoint", Layer: arch.Stages},
		{Path: "cri", Layer: arch.Stages, Outside: []string{"k8s.io/cri-api"}},
		{Path: "agent", Layer: arch.Composition},
	}
	tests := map[string]struct {
		pkg  arch.Package
		want string // a part of the one sentence; empty: no breach
	}{
		"a stage may import decisions":      {pkg: arch.Package{Dir: "status", Inside: []string{"derive", "podid"}}},
		"a stage may not import a stage":    {pkg: arch.Package{Dir: "source", Inside: []string{"status"}}, want: "source (stages) imports status"},
		"unless the table names it":         {pkg: arch.Package{Dir: "status", Inside: []string{"checkpoint"}}},
		"a sub-folder belongs to its room":  {pkg: arch.Package{Dir: "source/file", Inside: []string{"source"}}},
		"a decision may not import a stage": {pkg: arch.Package{Dir: "derive", Inside: []string{"status"}}, want: "derive (decisions) imports status"},
		"only the agent connects stages":    {pkg: arch.Package{Dir: "agent", Inside: []string{"status", "source", "derive"}}},
		"a decision does no I/O":            {pkg: arch.Package{Dir: "derive", Outside: []string{"os"}}, want: "never acts"},
		"vocabulary needs no library":       {pkg: arch.Package{Dir: "podid", Outside: []string{"k8s.io/api/core/v1"}}, want: "words need no libraries"},
		"vocabulary has apimachinery types": {pkg: arch.Package{Dir: "podid", Outside: []string{"k8s.io/apimachinery/pkg/types"}}},
		"the monorepo stays out":            {pkg: arch.Package{Dir: "status", Outside: []string{"k8s.io/kubernetes/pkg/kubelet"}}, want: "lean module never"},
		"the full clientset stays out":      {pkg: arch.Package{Dir: "status", Outside: []string{"k8s.io/client-go/kubernetes"}}, want: "lean module never"},
		"CRI is only for its room":          {pkg: arch.Package{Dir: "status", Outside: []string{"k8s.io/cri-api/pkg"}}, want: "belongs to another room"},
		"and its room has it":               {pkg: arch.Package{Dir: "cri", Outside: []string{"k8s.io/cri-api/pkg"}}},
		"a package in no room":              {pkg: arch.Package{Dir: "cache"}, want: "is in no room"},
		"a name that says nothing":          {pkg: arch.Package{Dir: "source/util"}, want: "named after nothing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.pkg.Doc = "Package x."
			breaches := arch.Check(rooms, []arch.Package{test.pkg})
			switch {
			case test.want == "" && len(breaches) != 0:
				t.Fatalf("unexpected: %v", breaches)
			case test.want != "" && (len(breaches) != 1 || !strings.Contains(breaches[0], test.want)):
				t.Fatalf("want one breach about %q, have %v", test.want, breaches)
			}
		})
	}
}

func TestAPackageWithoutACommentIsABreach(t *testing.T) {
	breaches := arch.Check([]arch.Room{{Path: "podid", Layer: arch.Vocabulary}}, []arch.Package{{Dir: "podid"}})
	if len(breaches) != 1 || !strings.Contains(breaches[0], "no package comment") {
		t.Fatalf("have %v", breaches)
	}
}
