package demo

// Fit returns a frame for a terminal of that size.
func Fit(columns, rows int, header, pods, events []string) []string {
	return terminalSize{columns, rows}.fit(header, pods, events)
}
