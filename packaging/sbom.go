package packaging

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode"
)

// document is a document of SPDX 2.3, with the fields that are used here.
type document struct {
	Version       string             `json:"spdxVersion"`
	DataLicense   string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      creation           `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	Name             string          `json:"name"`
	ID               string          `json:"SPDXID"`
	Version          string          `json:"versionInfo"`
	FileName         string          `json:"packageFileName,omitempty"`
	DownloadLocation string          `json:"downloadLocation"`
	FilesAnalyzed    bool            `json:"filesAnalyzed"`
	Checksums        []spdxChecksum  `json:"checksums,omitempty"`
	SourceInfo       string          `json:"sourceInfo,omitempty"`
	LicenseConcluded string          `json:"licenseConcluded"`
	LicenseDeclared  string          `json:"licenseDeclared"`
	Copyright        string          `json:"copyrightText"`
	References       []spdxReference `json:"externalRefs"`
	Purpose          string          `json:"primaryPackagePurpose"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxReference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const (
	documentID = "SPDXRef-DOCUMENT"
	programID  = "SPDXRef-herald"
	noAnswer   = "NOASSERTION"
)

// SBOM returns the list of what a binary was linked from, as SPDX 2.3 in JSON. The first module is the program's own.
func SBOM(release Release, binary string, modules []Module) ([]byte, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	program := programPackage(release, modules[0], digest)
	list := document{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: documentID, Name: fmt.Sprintf("herald-%s-%s", release.Version, release.Arch),
		Namespace: "https://heraldnode.github.io/spdx/herald-" + release.Version + "-" + digest,
		Creation: creation{
			Created:  release.Time.Format(time.RFC3339),
			Creators: []string{"Organization: Herald", "Tool: herald-packaging-" + release.Version},
		},
		Packages:      []spdxPackage{program},
		Relationships: []spdxRelationship{{documentID, "DESCRIBES", programID}},
	}
	for _, module := range modules[1:] {
		dependency := modulePackage(module)
		list.Packages = append(list.Packages, dependency)
		list.Relationships = append(list.Relationships, spdxRelationship{programID, "STATIC_LINK", dependency.ID})
	}
	text, err := json.MarshalIndent(list, "", "  ")
	return append(text, '\n'), err
}

func programPackage(release Release, module Module, digest string) spdxPackage {
	source := ""
	if release.Commit != "" {
		source = "built from commit " + release.Commit
	}
	return spdxPackage{
		Name: "herald", ID: programID, Version: "v" + release.Version, FileName: "herald", DownloadLocation: noAnswer,
		Checksums: []spdxChecksum{{"SHA256", digest}}, SourceInfo: source,
		LicenseConcluded: noAnswer, LicenseDeclared: module.License(), Copyright: noAnswer,
		References: purl(module.Path, "v"+release.Version), Purpose: "APPLICATION",
	}
}

func modulePackage(module Module) spdxPackage {
	location, source := noAnswer, ""
	if module.Sum != "" {
		location = fmt.Sprintf("https://proxy.golang.org/%s/@v/%s.zip", escapeUpper(module.Path), escapeUpper(module.Version))
		source = "checksum in go.sum: " + module.Sum
	}
	return spdxPackage{
		Name: module.Path, ID: "SPDXRef-" + identifier(module.Path), Version: module.Version, DownloadLocation: location, SourceInfo: source,
		LicenseConcluded: noAnswer, LicenseDeclared: module.License(), Copyright: noAnswer,
		References: purl(module.Path, module.Version), Purpose: "LIBRARY",
	}
}

// purl returns the package URL, by which scanners find vulnerabilities.
func purl(path, version string) []spdxReference {
	locator := "pkg:golang/" + strings.ToLower(path) + "@" + url.QueryEscape(version)
	return []spdxReference{{"PACKAGE-MANAGER", "purl", locator}}
}

// identifier replaces what an identifier of SPDX must not contain.
func identifier(path string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '-'
	}, path)
}

// escapeUpper escapes capital letters as in the addresses of a module proxy: !azure for Azure.
func escapeUpper(path string) string {
	var escaped strings.Builder
	for _, r := range path {
		if unicode.IsUpper(r) {
			escaped.WriteRune('!')
		}
		escaped.WriteRune(unicode.ToLower(r))
	}
	return escaped.String()
}
