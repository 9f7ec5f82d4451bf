package cri

import (
	"context"
	"net"
)

// Dial makes tests reach their runtime in memory, where time can be moved.
func (c *Config) Dial(dial func(ctx context.Context, address string) (net.Conn, error)) {
	c.dial = dial
}

// ThermalThrottlePaths exports thermalThrottlePaths.
var ThermalThrottlePaths = thermalThrottlePaths
