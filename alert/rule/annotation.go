package rule

import (
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/expression"
)

// maxAnnotation is the maximum length of an annotation in bytes.
const maxAnnotation = 4096

// annotation is a parsed annotation.
type annotation struct {
	name     string
	template *template.Template
}

// definitions make the data available as variables, as in Prometheus.
const definitions = "{{$labels := .Labels}}{{$value := .Value}}{{$facts := .Facts}}"

// templateData is what annotations can use.
type templateData struct {
	Labels map[string]string
	Value  any
	Facts  map[string]any
}

// Annotate returns the annotations of an alert. An annotation that fails has the text of the error.
func (r *Rule) Annotate(labels alert.Labels, value *float64, in Input) map[string]string {
	if len(r.compiled.annotations) == 0 {
		return nil
	}
	data := newTemplateData(labels, value, in)
	all := make(map[string]string, len(r.compiled.annotations))
	for _, a := range r.compiled.annotations {
		text, err := a.execute(data)
		if err != nil {
			text = bounded(fmt.Sprintf("<error: %v>", err))
		}
		all[a.name] = text
	}
	return all
}

func newTemplateData(labels alert.Labels, value *float64, in Input) templateData {
	data := templateData{Labels: labels, Value: expression.UnknownFact, Facts: expression.Facts(expression.RuleInput(in))}
	if value != nil {
		data.Value = *value
	}
	return data
}

var errFull = errors.New("the annotation is full")

// boundedWriter keeps the first bytes.
type boundedWriter struct{ strings.Builder }

// Write implements io.Writer. It fails when nothing more fits, to end the template.
func (w *boundedWriter) Write(data []byte) (int, error) {
	if free := maxAnnotation - w.Len(); len(data) > free {
		w.Builder.Write(data[:free])
		return free, errFull
	}
	return w.Builder.Write(data)
}

// execute executes the template. It does not panic.
func (a *annotation) execute(data templateData) (text string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	var out boundedWriter
	if err := a.template.Execute(&out, data); err != nil && !errors.Is(err, errFull) {
		return "", errors.New(templateError(err))
	}
	return strings.ToValidUTF8(out.String(), ""), nil
}

func (p *parser) parseAnnotations(fields map[string]value, r *Rule) {
	at, found := fields["annotations"]
	if !found {
		return
	}
	r.Text.Annotations = map[string]string{}
	for _, entry := range p.entries(at) {
		text, ok := p.text(entry.value)
		switch {
		case !ok:
			continue
		case !labelName.MatchString(entry.key):
			p.addf(entry.value, "%q is no name; use letters, digits and _, and start with a letter", entry.key)
			continue
		case entry.key == alert.AnnotationExplain || entry.key == alert.AnnotationLastLog || entry.key == alert.AnnotationHistoryURL:
			p.addf(entry.value, "the agent sets this annotation; use another name")
			continue
		case len(text) > maxTemplate:
			p.addf(entry.value, "has %d bytes; at most %d", len(text), maxTemplate)
			continue
		}
		a, err := newAnnotation(entry.key, text, r)
		if err != nil {
			p.addf(entry.value, "%v", err)
			continue
		}
		r.Text.Annotations[entry.key] = text
		r.compiled.annotations = append(r.compiled.annotations, a)
	}
}

// newAnnotation parses a template, and executes it once with facts and once without.
func newAnnotation(name, text string, r *Rule) (annotation, error) {
	parsed, err := template.New(name).Funcs(templateFunctions).Option("missingkey=error").Parse(definitions + text)
	if err != nil {
		return annotation{}, errors.New(templateError(err))
	}
	if len(parsed.Templates()) > 1 {
		return annotation{}, errors.New("an annotation cannot define templates")
	}
	if err := checkTemplate(parsed.Root, r.compiled.value != nil); err != nil {
		return annotation{}, err
	}
	a := annotation{name, parsed}
	labels := sampleLabels(r)
	for _, isKnown := range [...]bool{true, false} {
		data := newTemplateData(labels, nil, sampleInput(r.Scope, isKnown))
		if isKnown {
			data.Value = 1.5
		}
		if _, err := a.execute(data); err != nil {
			return annotation{}, errors.New(err.Error() + remedyOfTemplate(err, labels))
		}
	}
	return a, nil
}

// templateError returns the message without the position in the text, which definitions shift.
func templateError(err error) string {
	message := strings.TrimPrefix(err.Error(), "template: ")
	if _, after, found := strings.Cut(message, ": executing "); found {
		if _, cause, found := strings.Cut(after, " at "); found {
			return cause
		}
	}
	if parts := strings.SplitN(message, ": ", 2); len(parts) == 2 {
		return parts[1]
	}
	return message
}

func remedyOfTemplate(err error, labels alert.Labels) string {
	switch {
	case strings.Contains(err.Error(), "<$labels") && strings.Contains(err.Error(), "no entry for key"):
		return "; the labels are " + strings.Join(sortedKeys(labels), ", ")
	case strings.Contains(err.Error(), "labels.") && strings.Contains(err.Error(), "no entry for key"):
		return `; write {{ index $facts.pod.labels "name" }}, which is empty if there is none`
	case strings.Contains(err.Error(), "<$facts") && strings.Contains(err.Error(), "no entry for key"):
		return "; $facts has the variables and fields of the expression"
	case strings.Contains(err.Error(), "incompatible types"):
		return `; a fact that is not known is the text "unknown"`
	default:
		return ""
	}
}

// checkTemplate rejects what could run for long, and a value that the rule does not have.
func checkTemplate(node parse.Node, hasValue bool) error {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, child := range n.Nodes {
			if err := checkTemplate(child, hasValue); err != nil {
				return err
			}
		}
	case *parse.ActionNode:
		return checkPipe(n.Pipe, hasValue)
	case *parse.IfNode:
		return checkBranch(&n.BranchNode, hasValue)
	case *parse.WithNode:
		return checkBranch(&n.BranchNode, hasValue)
	case *parse.TextNode, *parse.CommentNode:
	default:
		return fmt.Errorf("%s is not possible in an annotation; use if, with and functions", node)
	}
	return nil
}

func checkBranch(n *parse.BranchNode, hasValue bool) error {
	return errors.Join(checkPipe(n.Pipe, hasValue), checkTemplate(n.List, hasValue), checkTemplate(n.ElseList, hasValue))
}

func checkPipe(pipe *parse.PipeNode, hasValue bool) error {
	for _, command := range pipe.Cmds {
		for _, argument := range command.Args {
			switch a := argument.(type) {
			case *parse.VariableNode:
				if a.Ident[0] == "$value" && !hasValue {
					return errors.New("$value is not known, because the rule has no value; add one, like value: pod.restarts")
				}
			case *parse.PipeNode:
				if err := checkPipe(a, hasValue); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
