package machine

// Exported for tests.
var (
	SelectAddresses = selectAddresses
	DefaultRoute    = defaultRoute
	DefaultRoute6   = defaultRoute6
)
