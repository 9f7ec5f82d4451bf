package cri

import (
	"context"
	"net"
	"time"

	"github.com/heraldnode/herald/podid"
)

// Dial makes tests reach their runtime in memory, where time can be moved.
func (c *Config) Dial(dial func(ctx context.Context, address string) (net.Conn, error)) {
	c.dial = dial
}

// ThermalThrottlePaths exports thermalThrottlePaths.
var ThermalThrottlePaths = thermalThrottlePaths

// PullTimes is pullTimes with exported methods.
type PullTimes struct{ pullTimes }

func (p *PullTimes) Begin(uid podid.UID, now time.Time) (end func(time.Time)) {
	return p.begin(uid, now)
}

func (p *PullTimes) Of(uid podid.UID) time.Duration { return p.of(uid) }

func (p *PullTimes) Forget(uid podid.UID) { p.forget(uid) }

// CgroupMount makes tests read cgroups from files of their own.
func (c *Config) CgroupMount(dir string) { c.cgroupMount = dir }

// WithoutEnvironment is withoutEnvironment.
var WithoutEnvironment = withoutEnvironment
