package page

import (
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"sync"
	"time"
)

const (
	codeLifetime  = time.Minute
	tokenLifetime = 12 * time.Hour
	// maxSessions bounds codes and tokens. The one that ends first makes room.
	maxSessions = 64
)

// session is what a code or a token stands for.
type session struct {
	mayAct bool
	ends   time.Time
}

// secretHash is the hash of a code or a token. Looking one up takes no time that depends on the secret.
type secretHash [sha256.Size]byte

// sessions has the codes and tokens that are valid.
type sessions struct {
	mu     sync.Mutex // guards all
	codes  map[secretHash]session
	tokens map[secretHash]session
	shown  string // the last code of currentCode
}

func newSessions() *sessions {
	return &sessions{codes: map[secretHash]session{}, tokens: map[secretHash]session{}}
}

func (s *sessions) newCode(mayAct bool) string {
	code := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	add(s.codes, code, session{mayAct: mayAct, ends: time.Now().Add(codeLifetime)})
	return code
}

// currentCode returns the code that it returned before, or a new one if that was used or ends within half its life.
func (s *sessions) currentCode() string {
	s.mu.Lock()
	shown, isKept := s.codes[sha256.Sum256([]byte(s.shown))]
	code := s.shown
	s.mu.Unlock()
	if isKept && time.Until(shown.ends) > codeLifetime/2 {
		return code
	}
	code = s.newCode(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = code
	return code
}

// exchange returns a token for a code, which is not valid any more then.
func (s *sessions) exchange(code string) (token string, opened session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := secretHash(sha256.Sum256([]byte(code)))
	granted, found := s.codes[hash]
	delete(s.codes, hash)
	if !found || !time.Now().Before(granted.ends) {
		return "", session{}, false
	}
	token, opened = rand.Text()+rand.Text(), session{mayAct: granted.mayAct, ends: time.Now().Add(tokenLifetime)}
	add(s.tokens, token, opened)
	return token, opened, true
}

// find returns the session of a token.
func (s *sessions) find(token string) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.tokens[sha256.Sum256([]byte(token))]
	return found, ok && time.Now().Before(found.ends)
}

// add adds a secret and removes those that have ended, or the oldest if there are too many.
func add(secrets map[secretHash]session, secret string, added session) {
	now := time.Now()
	maps.DeleteFunc(secrets, func(_ secretHash, s session) bool { return !now.Before(s.ends) })
	for len(secrets) >= maxSessions {
		var oldest secretHash
		for hash, s := range secrets {
			if oldest == (secretHash{}) || s.ends.Before(secrets[oldest].ends) {
				oldest = hash
			}
		}
		delete(secrets, oldest)
	}
	secrets[sha256.Sum256([]byte(secret))] = added
}
