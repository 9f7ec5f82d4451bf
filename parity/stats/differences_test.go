package stats_test

// fieldDifferences, valueDifferences and seriesDifferences are what Herald serves differently on purpose. docs/stats.md explains them.
var (
	fieldDifferences  = []difference{}
	valueDifferences  = []difference{}
	seriesDifferences = []difference{}
)
