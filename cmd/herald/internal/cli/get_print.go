package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/internal/table"
)

// formats are what -o takes.
var formats = []string{"wide", "json", "yaml", "name"}

// podPrinter prints pods in one format, now and later.
type podPrinter struct {
	out    io.Writer
	format string
	table  *table.Printer
	begun  bool // something was printed
}

func newPodPrinter(out io.Writer, g *getPods) *podPrinter {
	return &podPrinter{out: out, format: g.output, table: table.NewPrinter(out, table.Options{
		Namespaces: g.all, Wide: g.output == "wide", NoHeader: g.noHeaders,
	})}
}

func (p *podPrinter) print(pods ...*v1.Pod) error {
	switch p.format {
	case "json", "yaml", "name":
		for _, pod := range pods {
			if err := p.printOne(pod); err != nil {
				return err
			}
		}
		return nil
	}
	now := time.Now()
	rows := make([]table.Row, 0, len(pods))
	for _, pod := range pods {
		rows = append(rows, table.NewRow(pod, now))
	}
	return p.table.Print(rows...)
}

func (p *podPrinter) printOne(pod *v1.Pod) error {
	if p.format == "name" {
		_, err := fmt.Fprintln(p.out, "pod/"+table.Printable(pod.Name))
		return err
	}
	object, err := generic(pod)
	if err != nil {
		return err
	}
	return p.printObject(object)
}

// printList prints pods as kubectl does it: as a List of no particular kind.
func (p *podPrinter) printList(pods []*v1.Pod) error {
	items := make([]any, 0, len(pods))
	for _, pod := range pods {
		item, err := generic(pod)
		if err != nil {
			return err
		}
		items = append(items, item)
	}
	return p.printObject(map[string]any{
		"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items,
	})
}

func (p *podPrinter) printObject(object any) error {
	var text []byte
	var err error
	if p.format == "yaml" {
		text, err = yaml.Marshal(object)
		if p.begun {
			text = append([]byte("---\n"), text...)
		}
	} else {
		text, err = json.MarshalIndent(object, "", "    ")
		text = append(text, '\n')
	}
	if err != nil {
		return fmt.Errorf("write a pod as %s: %w", p.format, err)
	}
	p.begun = true
	_, err = p.out.Write(text)
	return err
}

// generic is the pod as an object whose fields are sorted by name, as kubectl prints them: without the record of who manages
// which field.
func generic(pod *v1.Pod) (map[string]any, error) {
	shown := *pod
	shown.APIVersion, shown.Kind, shown.ManagedFields = "v1", "Pod", nil
	text, err := json.Marshal(&shown)
	if err != nil {
		return nil, fmt.Errorf("write the pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("write the pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return object, nil
}
