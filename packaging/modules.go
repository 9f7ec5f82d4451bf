package packaging

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Module is a Go module that is linked into the program, or the standard library.
type Module struct {
	Path, Version string
	Sum           string   // of go.sum; empty for the program's own module and the standard library
	Notices       []Notice // licences and notices in its root
}

// Notice is a file with a licence or a notice.
type Notice struct {
	Name string
	Text []byte
}

// standardLibrary is the name of the module of Go's packages in lists of vulnerabilities.
const standardLibrary = "stdlib"

// ReadModules returns the modules that a binary was linked from, as the binary itself says: the program's own first, then the standard
// library, then the others by path. The program's licence comes from the repository, and the others from the cache of the modules of the
// go.mod in the directory module.
func ReadModules(ctx context.Context, binary, repository, module string) ([]Module, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	own, err := readNotices(repository)
	if err != nil {
		return nil, err
	}
	root, err := goCommand(ctx, module, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	library, err := readNotices(strings.TrimSpace(root))
	if err != nil {
		return nil, err
	}
	modules := []Module{
		{Path: info.Main.Path, Notices: own},
		{Path: standardLibrary, Version: strings.TrimPrefix(info.GoVersion, "go"), Notices: library},
	}
	var paths []string
	for _, dependency := range info.Deps {
		if dependency.Replace != nil {
			return nil, fmt.Errorf("module %s is replaced", dependency.Path)
		}
		paths = append(paths, dependency.Path)
	}
	dirs, err := moduleDirs(ctx, module, paths)
	if err != nil {
		return nil, err
	}
	for _, dependency := range info.Deps {
		notices, err := readNotices(dirs[dependency.Path+"@"+dependency.Version])
		if err != nil {
			return nil, fmt.Errorf("module %s %s: %w", dependency.Path, dependency.Version, err)
		}
		modules = append(modules, Module{Path: dependency.Path, Version: dependency.Version, Sum: dependency.Sum, Notices: notices})
	}
	slices.SortFunc(modules[2:], func(a, b Module) int { return strings.Compare(a.Path, b.Path) })
	return modules, nil
}

// moduleDirs returns the directories of modules in the cache, by path@version.
func moduleDirs(ctx context.Context, module string, paths []string) (map[string]string, error) {
	dirs := map[string]string{}
	if len(paths) == 0 {
		return dirs, nil
	}
	list, err := goCommand(ctx, module, append([]string{"list", "-m", "-f", "{{.Path}}@{{.Version}}\t{{.Dir}}"}, paths...)...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(list) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		dirs[name] = dir
	}
	return dirs, nil
}

func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, environment(runtime.GOARCH)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("go %s: %w: %s", args[0], err, bytes.TrimSpace(exit.Stderr))
	}
	return string(out), err
}

var noticeFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)(\..*|-.*)?$`)

// readNotices returns the files about licences in the root of a module. There must be one.
func readNotices(dir string) ([]Notice, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var notices []Notice
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !noticeFile.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		notices = append(notices, Notice{entry.Name(), text})
	}
	if len(notices) == 0 {
		return nil, errors.New("no licence")
	}
	return notices, nil
}

// phrases tell licences apart, by their identifiers in SPDX.
var phrases = map[string]*regexp.Regexp{
	"Apache-2.0":   regexp.MustCompile(`Apache License,?\s+Version 2\.0`),
	"MPL-2.0":      regexp.MustCompile(`Mozilla Public License,?\s+[Vv]ersion 2\.0`),
	"MIT":          regexp.MustCompile(`Permission is hereby granted, free of charge`),
	"ISC":          regexp.MustCompile(`Permission to use, copy, modify, and(/or)? distribute this software`),
	"BSD-3-Clause": regexp.MustCompile(`(?s)Redistribution and use in source and binary forms.*Neither\s+the\s+name`),
	"BSD-2-Clause": regexp.MustCompile(`(?s)Redistribution and use in source and binary forms`),
}

// License returns the licences of a module as an expression of SPDX, or NOASSERTION if none is recognized. It is what the files say; nobody
// has checked whether all parts of the module have these licences.
func (m Module) License() string {
	found := map[string]bool{}
	for _, notice := range m.Notices {
		for name, phrase := range phrases {
			if phrase.Match(notice.Text) {
				found[name] = true
			}
		}
	}
	if found["BSD-3-Clause"] {
		delete(found, "BSD-2-Clause")
	}
	var names []string
	for name := range found {
		names = append(names, name)
	}
	if len(names) == 0 {
		return "NOASSERTION"
	}
	slices.Sort(names)
	return strings.Join(names, " AND ")
}

// notices returns the licences and notices of all modules that others have written.
func notices(modules []Module) []byte {
	var text bytes.Buffer
	text.WriteString("Herald contains these Go modules. Their licences and notices follow.\n\n")
	for _, module := range modules[1:] {
		fmt.Fprintf(&text, "%s %s: %s\n", module.Path, module.Version, module.License())
	}
	for _, module := range modules[1:] {
		for _, notice := range module.Notices {
			fmt.Fprintf(&text, "\n---- %s %s: %s\n\n%s\n", module.Path, module.Version, notice.Name, bytes.TrimSpace(notice.Text))
		}
	}
	return text.Bytes()
}
