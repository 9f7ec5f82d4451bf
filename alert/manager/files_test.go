package manager_test

import (
	"path/filepath"
	"testing"

	"github.com/heraldnode/herald/alert/manager"
)

// A folder need not exist, also if its name looks as if it had an extension, like the default alerts.d. A file must.
func TestFiles_Missing(t *testing.T) {
	for name, isBroken := range map[string]bool{"rules": false, "alerts.d": false, "rules.yaml": true, "rules.YML": true} {
		m := newMachine(t)
		config := manager.Config{NodeName: "n1", Views: m, Paths: []string{filepath.Join(m.rules, "absent", name)}, NewWatcher: noWatcher}
		created, err := manager.New(config)
		if err != nil {
			t.Fatal(err)
		}
		files := created.Files()
		if got := len(files) > 0; got != isBroken {
			t.Errorf("%s: got %+v, want broken %v", name, files, isBroken)
		}
	}
}
