package nodeserver

import (
	"net"
	"sync"
	"syscall"
)

// Limits of a server, for a process that may open many files.
const (
	maxConnections    = 2000
	maxShort          = 100
	maxStreams        = 1000
	descriptorsOfUser = 4 // a stream takes a connection of the client and one of the runtime
)

// limits bound what clients can occupy. Streams last, so they must not take the places of short requests; and the streams of one user,
// or the connections of one address, must leave places for others (SRV-8).
type limits struct {
	short, streams *pool // by user
	connections    *pool // by address
}

// newLimits returns limits that leave most file descriptors to the agent.
func newLimits(descriptors uint64) *limits {
	share := int(min(descriptors/descriptorsOfUser, maxConnections))
	share = max(share, 8)
	return &limits{
		short: newPool(min(maxShort, share)), streams: newPool(min(maxStreams, share/2)), connections: newPool(share),
	}
}

// descriptorLimit returns how many files the process may open.
func descriptorLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return limit.Cur
}

// pool counts what is in use, in all and by key.
type pool struct {
	max, maxPerKey int

	mu    sync.Mutex // guards the fields below
	total int
	byKey map[string]int
}

// newPool returns a pool of which one key may use three quarters.
func newPool(size int) *pool {
	return &pool{max: size, maxPerKey: max(1, size*3/4), byKey: map[string]int{}}
}

func (p *pool) acquire(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total >= p.max || p.byKey[key] >= p.maxPerKey {
		return false
	}
	p.total++
	p.byKey[key]++
	return true
}

func (p *pool) release(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total--
	if p.byKey[key]--; p.byKey[key] == 0 {
		delete(p.byKey, key)
	}
}

// inUse returns how many are in use.
func (p *pool) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

// limitListener closes connections beyond the pool, instead of letting them wait: one client's must not delay those of others.
type limitListener struct {
	net.Listener
	pool *pool
}

// Accept implements net.Listener.
func (l limitListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
		if err != nil {
			host = conn.RemoteAddr().String()
		}
		if l.pool.acquire(host) {
			return &limitedConn{Conn: conn, release: sync.OnceFunc(func() { l.pool.release(host) })}, nil
		}
		_ = conn.Close()
	}
}

type limitedConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
