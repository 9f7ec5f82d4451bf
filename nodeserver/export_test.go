package nodeserver

// SetLimits lets a server have this many streams.
func SetLimits(s *Server, streams int) { s.limits.streams = newPool(streams) }
