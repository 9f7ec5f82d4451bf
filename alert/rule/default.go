package rule

import (
	_ "embed"
	"sync"
)

//go:embed default.yaml
var defaultRules []byte

var loadDefault = sync.OnceValue(func() *File {
	file, err := Parse(defaultRules, "")
	if err != nil {
		panic("default rules: " + err.Error()) // they are tested
	}
	return file
})

// Default returns the default rules.
func Default() *File { return loadDefault() }
