package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	lru "k8s.io/apimachinery/pkg/util/cache"
)

const (
	// cacheSize bounds the answers that are kept, about one for each user and permission. The least recently used goes first.
	cacheSize = 8192
	// fetchTimeout bounds how long an answer is waited for, with all retries.
	fetchTimeout = 30 * time.Second
)

// key identifies a question. It does not reveal it: the questions contain tokens.
type key [sha256.Size]byte

// cache keeps answers of the API server. Equal questions at the same time are asked once. SRV-47
type cache[T any] struct {
	secret  []byte // makes keys unpredictable
	entries *lru.LRUExpireCache

	mu      sync.Mutex // guards fetches, and the order of reading and adding entries
	fetches map[key]*fetch[T]
}

// fetch is a question that is being asked. It is cancelled when nobody waits for the answer any more.
type fetch[T any] struct {
	waiting int // guarded by cache.mu
	cancel  context.CancelFunc
	done    chan struct{} // closed when value and err are set
	value   T
	err     error
}

func newCache[T any]() *cache[T] {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	return &cache[T]{secret: secret, entries: lru.NewLRUExpireCache(cacheSize), fetches: map[key]*fetch[T]{}}
}

func (c *cache[T]) key(question []byte) key {
	hash := hmac.New(sha256.New, c.secret)
	hash.Write(question)
	return key(hash.Sum(nil))
}

// ask returns the answer of the last question with this key whose time has not passed, or that of question. The question returns how
// long its answer is kept. Errors are not kept.
func (c *cache[T]) ask(
	ctx context.Context, key key, question func(context.Context) (answer T, ttl time.Duration, err error),
) (answer T, isCached bool, err error) {
	c.mu.Lock()
	if entry, ok := c.entries.Get(key); ok {
		c.mu.Unlock()
		return entry.(T), true, nil //nolint:forcetypeassert // only values of type T are added
	}
	current := c.fetches[key]
	if current == nil {
		fetchCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		current = &fetch[T]{cancel: cancel, done: make(chan struct{})}
		c.fetches[key] = current
		go c.run(fetchCtx, key, current, question)
	}
	current.waiting++
	c.mu.Unlock()

	select {
	case <-current.done:
		return current.value, false, current.err
	case <-ctx.Done():
		c.leave(key, current)
		return answer, false, ctx.Err()
	}
}

func (c *cache[T]) run(
	ctx context.Context, key key, current *fetch[T], question func(context.Context) (T, time.Duration, error),
) {
	defer current.cancel()
	var ttl time.Duration
	current.value, ttl, current.err = question(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if current.err == nil && ttl > 0 {
		c.entries.Add(key, current.value, ttl)
	}
	c.removeLocked(key, current)
	close(current.done)
}

// leave cancels the fetch if its caller was the last who waited.
func (c *cache[T]) leave(key key, current *fetch[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	current.waiting--
	if current.waiting == 0 {
		current.cancel()
		c.removeLocked(key, current)
	}
}

// removeLocked removes the fetch, unless another took its place after everybody had left it.
func (c *cache[T]) removeLocked(key key, current *fetch[T]) {
	if c.fetches[key] == current {
		delete(c.fetches, key)
	}
}
