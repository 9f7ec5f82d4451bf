package cli

import (
	"math"
	"strings"
	"time"

	"github.com/heraldnode/herald/view"
)

// sparks are the heights of a sparkline, lowest first. A column without values is noSpark.
var sparks = []rune("▁▂▃▄▅▆▇█")

const noSpark = '·'

// chart is the time that sparklines show: columns of equal width.
type chart struct {
	from  time.Time
	width time.Duration
	// columns is the number of columns.
	columns int
}

func newChart(now time.Time, duration time.Duration, columns int) chart {
	return chart{from: now.Add(-duration), width: duration / time.Duration(columns), columns: columns}
}

// sparkline draws the largest value of each column, in relation to full. It returns the largest and the mean of all values and the last
// one, NaN if there are none.
func (c chart) sparkline(history *view.LoadHistory, values view.Points, full float64) (line string, largest, mean, last float64) {
	peaks := make([]float64, c.columns)
	for i := range peaks {
		peaks[i] = math.NaN()
	}
	largest, last = math.NaN(), math.NaN()
	sum, count := 0.0, 0
	for i, value := range values {
		at := history.Start.Add(time.Duration(int64(i)*history.StepMs) * time.Millisecond)
		if column := int(at.Sub(c.from) / c.width); !math.IsNaN(value) && at.Sub(c.from) >= 0 && column < c.columns {
			peaks[column], largest, last = larger(peaks[column], value), larger(largest, value), value
			sum, count = sum+value, count+1
		}
	}
	if full == 0 {
		full = largest
	}
	var text strings.Builder
	for _, peak := range peaks {
		if math.IsNaN(peak) {
			text.WriteRune(noSpark)
			continue
		}
		height := 0
		if full > 0 {
			height = int(peak / full * float64(len(sparks)))
		}
		text.WriteRune(sparks[min(max(height, 0), len(sparks)-1)])
	}
	return text.String(), largest, sum / float64(count), last
}

// larger returns the larger number, of which a may be NaN.
func larger(a, b float64) float64 {
	if math.IsNaN(a) || b > a {
		return b
	}
	return a
}

// valuesOf returns the values of a signal.
func valuesOf(history *view.LoadHistory, name string) view.Points {
	for i := range history.Signals {
		if history.Signals[i].Name == name && history.Start != nil {
			return history.Signals[i].Values
		}
	}
	return nil
}
