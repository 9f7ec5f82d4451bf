package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Package is what the rules need to know of one package: its folder relative to the module's root, and its non-test
// imports, those inside the module relative to its root too.
type Package struct {
	Dir     string
	Doc     string
	Inside  []string
	Outside []string
}

// Check holds packages against the rooms and returns one sentence for each breach.
func Check(rooms []Room, packages []Package) []string {
	var breaches []string
	for _, pkg := range packages {
		if pkg.Doc == "" {
			breaches = append(breaches, pkg.Dir+" has no package comment: say in a sentence what it is for")
		}
		if slices.Contains(bannedNames, path.Base(pkg.Dir)) {
			breaches = append(breaches, pkg.Dir+" is named after nothing: name it after what it does")
		}
		room, found := roomOf(rooms, pkg.Dir)
		if !found {
			breaches = append(breaches, pkg.Dir+" is in no room: add it to internal/arch/rooms.go, or move it into one")
			continue
		}
		breaches = append(breaches, checkInside(rooms, room, pkg)...)
		breaches = append(breaches, checkOutside(room, pkg)...)
	}
	return breaches
}

func checkInside(rooms []Room, room Room, pkg Package) []string {
	var breaches []string
	for _, imported := range pkg.Inside {
		target, found := roomOf(rooms, imported)
		if !found || target.Path == room.Path || slices.Contains(room.MayImport, target.Path) ||
			slices.Contains(below[room.Layer], target.Layer) {
			continue
		}
		breaches = append(breaches, fmt.Sprintf("%s (%s) imports %s (%s): the plan does not allow it",
			pkg.Dir, room.Layer, imported, target.Layer))
	}
	return breaches
}

func checkOutside(room Room, pkg Package) []string {
	var breaches []string
	for _, imported := range pkg.Outside {
		switch {
		case matchesAny(imported, neverImported):
			breaches = append(breaches, fmt.Sprintf("%s imports %s: the lean module never does", pkg.Dir, imported))
		case matchesAny(imported, restricted) && !matchesAny(imported, room.Outside):
			breaches = append(breaches, fmt.Sprintf("%s imports %s: that belongs to another room", pkg.Dir, imported))
		case slices.Contains(pureLayers, room.Layer) && slices.Contains(actingImports, imported):
			breaches = append(breaches, fmt.Sprintf("%s (%s) imports %s: it decides and never acts", pkg.Dir, room.Layer, imported))
		case room.Layer == Vocabulary && strings.Contains(imported, ".") && !matchesAny(imported, vocabularyFrom):
			breaches = append(breaches, fmt.Sprintf("%s (%s) imports %s: words need no libraries", pkg.Dir, room.Layer, imported))
		}
	}
	return breaches
}

// roomOf finds the deepest room that the folder lies in.
func roomOf(rooms []Room, dir string) (Room, bool) {
	var best Room
	found := false
	for _, room := range rooms {
		if (dir == room.Path || strings.HasPrefix(dir, room.Path+"/")) && len(room.Path) >= len(best.Path) {
			best, found = room, true
		}
	}
	return best, found
}

func matchesAny(imported string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		return imported == prefix || strings.HasPrefix(imported, prefix+"/")
	})
}
