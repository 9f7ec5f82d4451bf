package view

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/heraldnode/herald/load"
)

// LoadHistory is the load of the node or a pod over the last 24 hours, the answer of /herald/v1/load.
type LoadHistory struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // LoadHistory
	// Metadata is that of the node or the pod.
	Metadata Metadata `json:"metadata"`
	// Start is the time of the first values, which are means or maxima of the following StepMs: a minute of the node, five of a pod.
	// Absent if there are none.
	Start   *Time        `json:"start,omitempty"`
	StepMs  int64        `json:"stepMs"`
	Signals []LoadSignal `json:"signals"`
}

// LoadSignal is one signal.
type LoadSignal struct {
	// Name is saturation, cpu, memory, disk, ioPressure or memoryPressure of the node, which are shares, or cpu and cpuMax (cores), memory
	// and memoryMax (bytes) of a pod.
	Name   string `json:"name"`
	Values Points `json:"values"`
}

// Points are numbers, with NaN for what is not known, which is null in JSON.
type Points []float64

// MarshalJSON implements json.Marshaler.
func (p Points) MarshalJSON() ([]byte, error) {
	text := []byte{'['}
	for i, number := range p {
		if i > 0 {
			text = append(text, ',')
		}
		if math.IsNaN(number) {
			text = append(text, "null"...)
		} else {
			text = strconv.AppendFloat(text, number, 'f', -1, 64)
		}
	}
	return append(text, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Points) UnmarshalJSON(text []byte) error {
	var numbers []*float64
	if err := json.Unmarshal(text, &numbers); err != nil {
		return err
	}
	*p = make(Points, len(numbers))
	for i, number := range numbers {
		if (*p)[i] = math.NaN(); number != nil {
			(*p)[i] = *number
		}
	}
	return nil
}

// NewNodeLoadHistory returns the view of the points of a node, NewPodLoadHistory that of a pod's.
func NewNodeLoadHistory(points load.Points, metadata Metadata) LoadHistory {
	return newLoadHistory(points, metadata, load.NodeSignals, func(string) int { return shareDigits })
}

// NewPodLoadHistory returns the view of the points of a pod.
func NewPodLoadHistory(points load.Points, metadata Metadata) LoadHistory {
	return newLoadHistory(points, metadata, load.PodSignals, func(name string) int {
		if name == "cpu" || name == "cpuMax" {
			return coreDigits
		}
		return 0
	})
}

func newLoadHistory(points load.Points, metadata Metadata, names []string, digits func(name string) int) LoadHistory {
	v := LoadHistory{
		APIVersion: APIVersion, Kind: "LoadHistory", Metadata: Metadata{Namespace: metadata.Namespace, Name: metadata.Name, UID: metadata.UID},
		StepMs: points.Step.Milliseconds(),
	}
	for i, name := range names {
		signal := LoadSignal{Name: name, Values: Points{}}
		if i < len(points.Values) {
			for _, value := range points.Values[i] {
				number, known := value.Get()
				if !known {
					number = math.NaN()
				}
				signal.Values = append(signal.Values, round(number, digits(name)))
			}
		}
		if len(signal.Values) > 0 {
			v.Start = NewTime(points.Start)
		}
		v.Signals = append(v.Signals, signal)
	}
	return v
}
