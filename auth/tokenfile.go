package auth

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/heraldnode/herald/internal/permission"
)

const (
	tokenFileRisk     = "whoever can modify it can use the node's server as any user"
	tokenFileInterval = time.Second
	maxTokenFileSize  = 1 << 20
	minTokenLength    = 16
)

// tokenFile knows the tokens in a file. SRV-13
type tokenFile struct {
	path   string
	logger *slog.Logger

	mu    sync.Mutex // guards the fields below
	read  time.Time
	users map[[sha256.Size]byte]User // by hash, so that the time of a look-up says nothing about tokens
	fault string                     // that was logged
}

func newTokenFile(path string, logger *slog.Logger) (*tokenFile, error) {
	users, err := readTokenFile(path)
	if err != nil {
		return nil, err
	}
	return &tokenFile{path: path, logger: logger, users: users, read: time.Now()}, nil
}

// authenticate implements tokenSource. It reads the file again if a second has passed. While the file is missing, unsafe or not valid,
// no token is accepted: a user who was removed stays removed.
func (f *tokenFile) authenticate(_ context.Context, token string) (User, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.read) >= tokenFileInterval {
		f.reloadLocked()
	}
	user, ok := f.users[sha256.Sum256([]byte(token))]
	return user, ok, nil
}

func (f *tokenFile) reloadLocked() {
	users, err := readTokenFile(f.path)
	f.users, f.read = users, time.Now()
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	if fault != f.fault && err != nil {
		f.logger.Error("Failed to read the token file: no token of it is accepted", "err", err)
	}
	f.fault = fault
}

func readTokenFile(path string) (map[[sha256.Size]byte]User, error) {
	if err := permission.New(tokenFileRisk).CheckSecret(path); err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	defer func() { _ = file.Close() }()
	users, err := parseTokens(io.LimitReader(file, maxTokenFileSize))
	if err != nil {
		return nil, fmt.Errorf("token file %s: %w", path, err)
	}
	return users, nil
}

// parseTokens reads lines with token, user name, UID and, optionally, groups. Its errors name the line, but never a token.
func parseTokens(r io.Reader) (map[[sha256.Size]byte]User, error) {
	reader := csv.NewReader(r)
	reader.FieldsPerRecord, reader.Comment, reader.TrimLeadingSpace = -1, '#', true
	users := map[[sha256.Size]byte]User{}
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return users, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := reader.FieldPos(0)
		if len(record) < 3 || len(record) > 4 {
			return nil, fmt.Errorf("line %d: has %d fields, not token, user name, UID and groups in quotation marks", line, len(record))
		}
		token, user := record[0], User{Name: record[1], UID: record[2]}
		if len(token) < minTokenLength || user.Name == "" {
			return nil, fmt.Errorf("line %d: a token of at least %d characters and a user name are required", line, minTokenLength)
		}
		if len(record) == 4 && record[3] != "" {
			for group := range strings.SplitSeq(record[3], ",") {
				user.Groups = append(user.Groups, strings.TrimSpace(group))
			}
		}
		hash := sha256.Sum256([]byte(token))
		if _, isDuplicate := users[hash]; isDuplicate {
			return nil, fmt.Errorf("line %d: the token is on an earlier line, too", line)
		}
		users[hash] = user
	}
}
