package packaging_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"

	"github.com/heraldnode/herald/packaging"
)

// The list of modules is valid SPDX 2.3 to the library of SPDX, and has every module of the binary: here that of make packages.
func TestSBOM(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "packages")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, "./cmd/packages")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	modules, err := packaging.ReadModules(t.Context(), binary, repository, ".")
	if err != nil {
		t.Fatal(err)
	}
	text, err := packaging.SBOM(testRelease, binary, modules)
	if err != nil {
		t.Fatal(err)
	}
	list := readSPDX(t, text)
	if len(list.Packages) != len(modules) || len(modules) < 3 {
		t.Fatalf("got %d packages of %d modules", len(list.Packages), len(modules))
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	program := list.Packages[0]
	if got := program.PackageChecksums[0].Value; got != hex.EncodeToString(sum[:]) || program.PackageVersion != "v1.2.3" {
		t.Errorf("got version %s, checksum %s", program.PackageVersion, got)
	}
	purls := map[string]bool{}
	for _, pkg := range list.Packages {
		purls[pkg.PackageExternalReferences[0].Locator] = true
		if pkg.PackageLicenseDeclared == "NOASSERTION" {
			t.Errorf("the licence of %s is not recognized", pkg.PackageName)
		}
	}
	for _, module := range modules[1:] {
		if want := "pkg:golang/" + strings.ToLower(module.Path) + "@" + strings.ReplaceAll(module.Version, "+", "%2B"); !purls[want] {
			t.Errorf("%s is missing", want)
		}
	}
}

// readSPDX reads and validates a document: all relationships are between elements that exist.
func readSPDX(t *testing.T, text []byte) *v2_3.Document {
	t.Helper()
	var list v2_3.Document
	if err := spdxjson.ReadInto(bytes.NewReader(text), &list); err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(&list); err != nil {
		t.Error(err)
	}
	if list.SPDXVersion != "SPDX-2.3" || list.DataLicense != "CC0-1.0" || list.CreationInfo == nil || list.DocumentNamespace == "" {
		t.Errorf("the document is incomplete: %+v", list)
	}
	seen := map[string]bool{}
	for _, pkg := range list.Packages {
		if id := string(pkg.PackageSPDXIdentifier); seen[id] {
			t.Errorf("identifier %s is not unique", id)
		} else {
			seen[id] = true
		}
	}
	return &list
}

func TestModule_License(t *testing.T) {
	tests := map[string]struct {
		texts []string
		want  string
	}{
		"one":     {[]string{"Apache License\n                           Version 2.0, January 2004"}, "Apache-2.0"},
		"several": {[]string{"Permission is hereby granted, free of charge, to any person\n\nApache License, Version 2.0"}, "Apache-2.0 AND MIT"},
		"clauses": {[]string{"Redistribution and use in source and binary forms\n * Neither the name of"}, "BSD-3-Clause"},
		"fewer":   {[]string{"Redistribution and use in source and binary forms, with or without"}, "BSD-2-Clause"},
		"notice":  {[]string{"This product includes software"}, "NOASSERTION"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var module packaging.Module
			for _, text := range test.texts {
				module.Notices = append(module.Notices, packaging.Notice{Text: []byte(text)})
			}
			if got := module.License(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
