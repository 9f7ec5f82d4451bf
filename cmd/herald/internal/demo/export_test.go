package demo

// Fit is the picture on a terminal of that size.
func Fit(columns, rows int, head, pods, events []string) []string {
	return view{columns, rows}.fit(head, pods, events)
}
