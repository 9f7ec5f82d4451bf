package manager

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/internal/permission"
	"github.com/heraldnode/herald/view"
)

// maxFileSize bounds a rule file.
const maxFileSize = 1 << 20

// loadedRules are the rules of all files. They are immutable.
type loadedRules struct {
	set   *rule.Set
	files []view.RuleFile
}

func (r *loadedRules) broken() int {
	broken := 0
	for i := range r.files {
		if r.files[i].Problem != "" {
			broken++
		}
	}
	return broken
}

// ruleFile is the state of one file. Its rules are those of the last good version, which stay until another good one is read or the file is
// removed.
type ruleFile struct {
	good    *rule.File // nil if there was none
	content string     // of the good version
	goodAt  time.Time
	digest  [sha256.Size]byte // of the newest content
	problem string            // of the newest content, or of the last attempt to read it
}

// savedFile is the last good version of a file.
type savedFile struct {
	Content string    `json:"content"`
	At      time.Time `json:"at"`
}

// loader reads rule files. It is owned by one goroutine.
type loader struct {
	config      *Config
	permissions permission.Checker
	store       *checkpoint.Store[map[string]savedFile] // nil without Config.State
	files       map[string]*ruleFile
	loaded      *loadedRules
}

func newLoader(config *Config) (*loader, error) {
	l := &loader{config: config, permissions: permission.New("define alerts and actions of the agent"), files: map[string]*ruleFile{}}
	if config.State == nil {
		return l, nil
	}
	var err error
	if l.store, err = checkpoint.NewStore[map[string]savedFile](config.State, "alert-rules", 1); err != nil {
		return nil, err
	}
	saved, err := l.store.Load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the store has set a corrupt file aside
		config.Logger.Error("Failed to load the last good alert rules", "err", err)
	}
	for path, file := range saved {
		if parsed, err := rule.Parse([]byte(file.Content), path); err == nil {
			l.files[path] = &ruleFile{good: parsed, content: file.Content, goodAt: file.At, digest: sha256.Sum256([]byte(file.Content))}
		}
	}
	return l, nil
}

// scan reads what changed and reports whether the rules or their problems did.
func (l *loader) scan() (*loadedRules, bool) {
	before, now := l.problems(), time.Now()
	found, changed := map[string]bool{}, map[string]ruleFile{}
	for _, path := range l.config.Paths {
		for _, file := range l.list(path, found) {
			l.read(file, now, changed)
		}
	}
	isSame := len(changed) == 0 && l.loaded != nil
	for path := range l.files {
		if !found[path] {
			delete(l.files, path)
			isSame = false
		}
	}
	set, err := l.merge()
	if err != nil { // the newest versions contradict other files: the versions before them are used instead
		for path, previous := range changed {
			previous.problem, previous.digest = err.Error(), [sha256.Size]byte{} // it is tried again
			l.files[path] = &previous
		}
		set, err = l.merge()
	}
	switch {
	case err == nil:
	case l.loaded != nil:
		set = l.loaded.set
	default:
		set, _ = rule.Merge(l.config.Disable, l.defaults()...) // they do not contradict each other
	}
	after := l.problems()
	if isSame && maps.Equal(before, after) {
		return l.loaded, false
	}
	l.report(before, after)
	l.loaded = &loadedRules{set: set, files: l.states()}
	l.save()
	return l.loaded, true
}

func (l *loader) defaults() []*rule.File {
	if l.config.NoDefaults {
		return nil
	}
	return []*rule.File{rule.Default()}
}

func (l *loader) merge() (*rule.Set, error) {
	files := l.defaults()
	for _, path := range slices.Sorted(maps.Keys(l.files)) {
		if good := l.files[path].good; good != nil {
			files = append(files, good)
		}
	}
	return rule.Merge(l.config.Disable, files...)
}

// isRuleFile reports whether the name is that of a file with rules, and not of a folder.
func isRuleFile(name string) bool {
	extension := strings.ToLower(filepath.Ext(name))
	return extension == ".yaml" || extension == ".yml"
}

// list returns the rule files at a path and adds those that exist, or may, to found.
func (l *loader) list(path string, found map[string]bool) []string {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !isRuleFile(path): // a folder need not exist
		return nil
	case err != nil || !info.IsDir():
		found[path] = true
		return []string{path}
	}
	entries, err := os.ReadDir(path)
	if err == nil {
		err = l.permissions.CheckFile(path)
	}
	if err != nil {
		l.keepFolder(path, fmt.Errorf("folder of rules: %w", err), found)
		return nil
	}
	var files []string
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || strings.HasPrefix(name, ".") || !isRuleFile(name) {
			continue
		}
		file := filepath.Join(path, name)
		found[file] = true
		files = append(files, file)
	}
	return files
}

// keepFolder keeps the last good versions of all files of a folder that cannot be used.
func (l *loader) keepFolder(path string, err error, found map[string]bool) {
	for file, state := range l.files {
		if filepath.Dir(file) == path {
			found[file], state.problem = true, err.Error()
		}
	}
	found[path] = true
	l.files[path] = &ruleFile{problem: err.Error()}
}

// read reads a file. If it has a new good version, the previous one is added to changed.
func (l *loader) read(path string, now time.Time, changed map[string]ruleFile) {
	file := l.files[path]
	if file == nil {
		file = &ruleFile{}
		l.files[path] = file
	}
	content, err := l.load(path)
	if err != nil {
		file.problem, file.digest = err.Error(), [sha256.Size]byte{}
		return
	}
	digest := sha256.Sum256(content)
	if digest == file.digest {
		if file.good != nil && file.content == string(content) {
			file.problem = ""
		}
		return
	}
	before := *file
	file.digest = digest
	parsed, err := rule.Parse(content, path)
	if err != nil {
		file.problem = err.Error()
		return
	}
	changed[path] = before
	file.good, file.content, file.goodAt, file.problem = parsed, string(content), now, ""
}

// load returns the content of a file that only trusted users can write.
func (l *loader) load(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if err := l.permissions.Check(path, &stat); err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	content, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	if err == nil && len(content) > maxFileSize {
		err = fmt.Errorf("%s is larger than %d bytes; split it into several files", path, maxFileSize)
	}
	return content, err
}

func (l *loader) problems() map[string]string {
	problems := map[string]string{}
	for path, file := range l.files {
		if file.problem != "" {
			problems[path] = file.problem
		}
	}
	return problems
}

// report tells which problems appeared and which are gone.
func (l *loader) report(before, after map[string]string) {
	for path, problem := range after {
		if before[path] != problem {
			l.config.Logger.Error("Failed to use alert rules, keeping the last good version", "path", path, "err", problem)
			l.config.Journal.RulesChanged(path, problem)
		}
	}
	for path := range before {
		if after[path] == "" {
			l.config.Logger.Info("Alert rules can be used again", "path", path)
			l.config.Journal.RulesChanged(path, "")
		}
	}
}

func (l *loader) states() []view.RuleFile {
	states := make([]view.RuleFile, 0, len(l.files))
	for _, path := range slices.Sorted(maps.Keys(l.files)) {
		file := l.files[path]
		state := view.RuleFile{Path: path, State: "ok", LastChange: view.NewTime(file.goodAt)}
		if file.good != nil {
			state.Rules = len(file.good.Rules)
		}
		if file.problem != "" {
			state.State, state.Problem = "error", file.problem
			state.LastChange, state.LastGood = nil, view.NewTime(file.goodAt)
		}
		states = append(states, state)
	}
	return states
}

// save stores the last good versions. An unchanged value is not written.
func (l *loader) save() {
	if l.store == nil {
		return
	}
	saved := map[string]savedFile{}
	for path, file := range l.files {
		if file.good != nil {
			saved[path] = savedFile{Content: file.content, At: file.goodAt.Round(0)}
		}
	}
	if err := l.store.Save(saved); err != nil {
		l.config.Logger.Error("Failed to store the last good alert rules", "err", err)
	}
}
