package source

import (
	"path/filepath"
	"slices"
	"strings"
)

// AnyExtension in FileConfig.Extensions stands for every name, as the kubelet reads them; hidden files and backups are
// left out all the same.
const AnyExtension = "*"

// nameVerdict says what a name in the manifest directory stands for.
type nameVerdict int

const (
	hiddenName   nameVerdict = iota // not ours to look at
	ignoredName                     // not read, but somebody may wonder why
	manifestName                    // to be read
)

// judgeName decides by the name alone. Names with a leading dot are editors' and tools' own: swap files, and the ..data
// folders behind projected volumes. What an editor or a package manager leaves beside the real file must not run as a
// second pod, or shadow it (BUG-32).
func judgeName(name string, extensions []string) nameVerdict {
	switch {
	case strings.HasPrefix(name, "."):
		return hiddenName
	case isBackup(name):
		return ignoredName
	case slices.Contains(extensions, AnyExtension):
		return manifestName
	case slices.Contains(extensions, strings.ToLower(filepath.Ext(name))):
		return manifestName
	default:
		return ignoredName
	}
}

func isBackup(name string) bool {
	name = strings.ToLower(name)
	if strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#") {
		return true
	}
	if strings.Contains(name, ".dpkg-") {
		return true
	}
	for _, suffix := range [...]string{
		"~", ".bak", "-bak", ".backup", ".orig", ".rej", ".swp", ".swo", ".swx", ".tmp", ".temp", ".part", ".old", "-old",
		".save", ".rpmsave", ".rpmnew", ".rpmorig", ".ucf-old", ".ucf-new", ".ucf-dist",
	} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}
