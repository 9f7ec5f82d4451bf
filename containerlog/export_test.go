package containerlog

import "time"

// SetPoll makes followers look at their files more often than they would.
func (c *Config) SetPoll(interval time.Duration) { c.poll = interval }
