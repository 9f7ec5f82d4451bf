package stream

import "time"

// SetTerminatedGrace changes how long the streams of terminated pods may stay open.
func (p *Proxy) SetTerminatedGrace(grace time.Duration) { p.terminatedGrace = grace }
