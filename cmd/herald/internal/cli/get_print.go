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

// outputFormats are the values of --output.
var outputFormats = []string{"wide", "json", "yaml", "name"}

// podPrinter prints pods in one format. It may print several times, as a watch does.
type podPrinter struct {
	out        io.Writer
	format     string
	table      *table.Printer
	hasPrinted bool // separates YAML documents
}

func newPodPrinter(out io.Writer, o *getOptions) *podPrinter {
	return &podPrinter{out: out, format: o.output, table: table.NewPrinter(out, table.Options{
		Namespaces: o.allNamespaces, Wide: o.output == "wide", NoHeader: o.noHeaders,
	})}
}

func (p *podPrinter) print(pods ...*v1.Pod) error {
	switch p.format {
	case "json", "yaml", "name":
		for _, pod := range pods {
			if err := p.printPod(pod); err != nil {
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

func (p *podPrinter) printPod(pod *v1.Pod) error {
	if p.format == "name" {
		_, err := fmt.Fprintln(p.out, "pod/"+table.Printable(pod.Name))
		return err
	}
	object, err := toObject(pod)
	if err != nil {
		return err
	}
	return p.printObject(object)
}

// printList prints the pods as a v1 List, like kubectl.
func (p *podPrinter) printList(pods []*v1.Pod) error {
	items := make([]any, 0, len(pods))
	for _, pod := range pods {
		item, err := toObject(pod)
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
		if p.hasPrinted {
			text = append([]byte("---\n"), text...)
		}
	} else {
		text, err = json.MarshalIndent(object, "", "    ")
		text = append(text, '\n')
	}
	if err != nil {
		return fmt.Errorf("encode pods as %s: %w", p.format, err)
	}
	p.hasPrinted = true
	_, err = p.out.Write(text)
	return err
}

// toObject converts the pod to a map, whose keys are printed in alphabetical order like kubectl's, and omits the managed
// fields.
func toObject(pod *v1.Pod) (map[string]any, error) {
	shallow := *pod
	shallow.APIVersion, shallow.Kind, shallow.ManagedFields = "v1", "Pod", nil
	text, err := json.Marshal(&shallow)
	if err != nil {
		return nil, fmt.Errorf("encode pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("encode pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return object, nil
}
