// Package manpage writes the manual pages of a command and its subcommands, from the texts of their help.
package manpage

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Page is a manual page of section 1.
type Page struct {
	Name string // herald-get
	Text string // roff
}

// Pages returns the pages of the command and of all its subcommands that are not hidden. Version is in their footers, and exit is the
// section about exit statuses of the first page. Equal arguments give equal pages.
func Pages(root *cobra.Command, version, exit string) []Page {
	pages := []Page{{Name: pageName(root), Text: page(root, version, exit)}}
	for _, sub := range subcommands(root) {
		pages = append(pages, Pages(sub, version, "")...)
	}
	return pages
}

// pageName returns herald-config-show for 'herald config show'.
func pageName(command *cobra.Command) string {
	return strings.ReplaceAll(command.CommandPath(), " ", "-")
}

func subcommands(command *cobra.Command) []*cobra.Command {
	var subs []*cobra.Command
	for _, sub := range command.Commands() {
		if sub.IsAvailableCommand() {
			subs = append(subs, sub)
		}
	}
	return subs
}

func page(command *cobra.Command, version, exit string) string {
	command.InitDefaultHelpFlag()
	command.InitDefaultVersionFlag()
	var text strings.Builder
	name := pageName(command)
	fmt.Fprintf(&text, ".TH %s 1 \"\" %s %s\n", quote(strings.ToUpper(name)), quote("Herald "+version), quote("Herald"))
	fmt.Fprintf(&text, ".SH NAME\n%s \\- %s\n", escape(name), escape(command.Short))
	text.WriteString(".SH SYNOPSIS\n")
	if command.Runnable() {
		writeBlock(&text, command.UseLine())
	}
	subs := subcommands(command)
	if len(subs) > 0 {
		writeBlock(&text, command.CommandPath()+" COMMAND [flags]")
	}
	text.WriteString(".SH DESCRIPTION\n")
	writeProse(&text, strings.TrimSpace(cmp.Or(command.Long, command.Short+".")))
	writeCommands(&text, subs)
	writeFlags(&text, "OPTIONS", command.NonInheritedFlags())
	writeFlags(&text, "OPTIONS OF ALL COMMANDS", command.InheritedFlags())
	if command.Example != "" {
		text.WriteString(".SH EXAMPLES\n")
		writeBlock(&text, dedent(command.Example))
	}
	writeEnvironment(&text, command)
	if exit != "" {
		text.WriteString(".SH EXIT STATUS\n")
		writeBlock(&text, strings.TrimSpace(exit))
	}
	writeSeeAlso(&text, command, subs)
	return text.String()
}

func writeCommands(text *strings.Builder, subs []*cobra.Command) {
	if len(subs) == 0 {
		return
	}
	text.WriteString(".SH COMMANDS\n")
	for _, sub := range subs {
		fmt.Fprintf(text, ".TP\n.B %s\n%s. See\n.BR %s (1).\n", escape(sub.Name()), escape(sub.Short), escape(pageName(sub)))
	}
}

func writeFlags(text *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(text, ".SH %s\n", title)
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || flag.Deprecated != "" {
			return
		}
		value, usage := pflag.UnquoteUsage(flag)
		text.WriteString(".TP\n")
		if flag.Shorthand != "" {
			fmt.Fprintf(text, "\\fB\\-%s\\fR, ", escape(flag.Shorthand))
		}
		fmt.Fprintf(text, "\\fB\\-\\-%s\\fR", escape(flag.Name))
		if value != "" {
			fmt.Fprintf(text, " \\fI%s\\fR", escape(value))
		}
		fmt.Fprintf(text, "\n%s%s\n", escapeLine(usage), escape(defaultOf(flag)))
	})
}

// defaultOf returns the part of the help that names the default, or "" if there is none.
func defaultOf(flag *pflag.Flag) string {
	switch flag.DefValue {
	case "", "0", "0s", "false", "[]", "map[]":
		return ""
	}
	if flag.Value.Type() == "string" {
		return fmt.Sprintf(" (default %q)", flag.DefValue)
	}
	return " (default " + flag.DefValue + ")"
}

func writeEnvironment(text *strings.Builder, command *cobra.Command) {
	if command.HasParent() && command.Flags().Lookup("server") == nil {
		return
	}
	text.WriteString(`.SH ENVIRONMENT
.TP
.B HERALD_SERVER
address of the agent that commands ask, if \fB\-\-server\fR does not name one
`)
}

func writeSeeAlso(text *strings.Builder, command *cobra.Command, subs []*cobra.Command) {
	related := subs
	if command.HasParent() {
		related = append([]*cobra.Command{command.Parent()}, related...)
		if root := command.Root(); root != command.Parent() {
			related = append([]*cobra.Command{root}, related...)
		}
	}
	var names []string
	for _, other := range related {
		names = append(names, "\\fB"+escape(pageName(other))+"\\fR(1)")
	}
	if len(names) > 0 {
		fmt.Fprintf(text, ".SH SEE ALSO\n%s\n", strings.Join(names, ", "))
	}
}

// column finds paragraphs whose lines must not be joined: indented ones, and those with columns.
var column = regexp.MustCompile(`(?m)^[ \t]|\S {2,}\S`)

// writeProse writes the paragraphs of a text.
func writeProse(text *strings.Builder, prose string) {
	for i, paragraph := range strings.Split(prose, "\n\n") {
		if i > 0 {
			text.WriteString(".PP\n")
		}
		if column.MatchString(paragraph) {
			writeBlock(text, dedent(paragraph))
			continue
		}
		for line := range strings.SplitSeq(paragraph, "\n") {
			text.WriteString(escapeLine(line) + "\n")
		}
	}
}

// writeBlock writes lines as they are.
func writeBlock(text *strings.Builder, lines string) {
	text.WriteString(".nf\n")
	for line := range strings.SplitSeq(lines, "\n") {
		text.WriteString(escapeLine(line) + "\n")
	}
	text.WriteString(".fi\n")
}

// dedent removes the indentation of the first line from all lines.
func dedent(lines string) string {
	lines = strings.Trim(lines, "\n")
	indent := lines[:len(lines)-len(strings.TrimLeft(lines, " \t"))]
	return strings.ReplaceAll(strings.TrimPrefix(lines, indent), "\n"+indent, "\n")
}

var special = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "\t", "    ")

// escape returns text that roff prints as it is, within a line.
func escape(text string) string { return special.Replace(text) }

// escapeLine returns a whole line, which roff must not take for a request.
func escapeLine(line string) string {
	line = escape(line)
	if strings.HasPrefix(line, ".") {
		return `\&` + line
	}
	return line
}

// quote returns an argument of a request.
func quote(argument string) string {
	return `"` + strings.ReplaceAll(escape(argument), `"`, `\(dq`) + `"`
}
