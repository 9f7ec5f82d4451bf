package cli

import (
	"fmt"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/table"
)

// getFormats are the values of --output of get.
var getFormats = []string{formatWide, formatJSON, formatYAML, formatName, formatJSONPath, formatWhy}

// podPrinter prints pods in one format. It may print several times, as a watch does.
type podPrinter struct {
	out     io.Writer
	format  outputFormat
	objects objectPrinter
	table   *table.Printer
}

func newPodPrinter(out io.Writer, o *getOptions) *podPrinter {
	return &podPrinter{
		out: out, format: o.format, objects: objectPrinter{out: out, format: o.format},
		table: table.NewPrinter(out, table.Options{
			Namespaces: o.allNamespaces, Wide: o.format.name == formatWide, NoHeader: o.noHeaders,
		}),
	}
}

func (p *podPrinter) print(pods ...*v1.Pod) error {
	if p.format.isObject() || p.format.name == formatName {
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
	if p.format.name == formatName {
		_, err := fmt.Fprintln(p.out, "pod/"+table.Printable(pod.Name))
		return err
	}
	object, err := toObject(pod)
	if err != nil {
		return err
	}
	return p.objects.print(object)
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
	return p.objects.print(map[string]any{
		"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items,
	})
}

// toObject converts the pod to a map, whose keys are printed in alphabetical order like kubectl's, and omits the managed
// fields.
func toObject(pod *v1.Pod) (map[string]any, error) {
	shallow := *pod
	shallow.APIVersion, shallow.Kind, shallow.ManagedFields = "v1", "Pod", nil
	object, err := toMap(&shallow)
	if err != nil {
		return nil, fmt.Errorf("encode pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return object, nil
}
