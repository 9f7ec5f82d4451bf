package bench

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
)

// Point is a burst of one size, in seconds until all is visible.
type Point struct {
	Pods            int
	Kubelet, Herald float64
}

// Curve measures bursts of several sizes, with 5 ms added to each request.
func Curve(ctx context.Context, lab *Lab, sizes ...int) ([]Point, error) {
	var points []Point
	for _, pods := range sizes {
		lab.say("%d pods turn Running, 5ms added to each request", pods)
		b := burst{pods: pods, line: line{delay: 5 * time.Millisecond}}
		took, err := inTurns(min(lab.Effort.Bursts, 3), lab.timeBurst(ctx, b, startKubelet), lab.timeBurst(ctx, b, startHerald))
		if err != nil {
			return nil, fmt.Errorf("a burst of %d pods: %w", pods, err)
		}
		points = append(points, Point{Pods: pods, Kubelet: median(took[0]), Herald: median(took[1])})
	}
	return points, nil
}

// The picture's size, and the frame of its axes in it.
const (
	plotWidth, plotHeight  = 720, 400
	left, right, top, base = 64.0, 696.0, 56.0, 340.0
)

// plot draws both sides of the curve as SVG: pods against seconds. Its colours follow the reader's light or dark mode, with
// the background, so that it can be read on any page.
func plot(points []Point) string {
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">
<title id="title">Time until a burst of status changes is visible, kubelet and Herald</title>
<style>
  .ground { fill: #ffffff } .grid { stroke: #d1d9e0 }
  text { fill: #1f2328; font: 13px system-ui, sans-serif } .head { font-size: 15px; font-weight: 600 }
  .kubelet { stroke: #bc4c00 } circle.kubelet { fill: #bc4c00 }
  .herald { stroke: #0969da } circle.herald { fill: #0969da }
  .kubelet, .herald { stroke-width: 2.5 } polyline.kubelet, polyline.herald { fill: none }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117 } .grid { stroke: #3d444d } text { fill: #e6edf3 }
    .kubelet { stroke: #f0883e } circle.kubelet { fill: #f0883e }
    .herald { stroke: #58a6ff } circle.herald { fill: #58a6ff }
  }
</style>
<rect width="100%%" height="100%%" rx="6" class="ground"/>
<text class="head" x="%g" y="28">Pods turn Running at once, 5 ms added to each request</text>
`, plotWidth, plotHeight, left)
	axes := newAxes(points)
	axes.draw(&out)
	axes.series(&out, "kubelet", points, func(p Point) float64 { return p.Kubelet })
	axes.series(&out, "herald", points, func(p Point) float64 { return p.Herald })
	for i, name := range []string{"kubelet", "Herald"} {
		y := top + 8 + 22*float64(i)
		fmt.Fprintf(&out, `<line class="%s" x1="%g" y1="%g" x2="%g" y2="%g"/><text x="%g" y="%g">%s</text>`+"\n",
			strings.ToLower(name), left+20, y, left+48, y, left+56, y+4, name)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// axes turn pods and seconds into places. Both start at zero.
type axes struct{ maxPods, maxSeconds, podStep, secondStep float64 }

func newAxes(points []Point) axes {
	a := axes{}
	for _, p := range points {
		a.maxPods = max(a.maxPods, float64(p.Pods))
		a.maxSeconds = max(a.maxSeconds, p.Kubelet, p.Herald)
	}
	a.podStep, a.secondStep = step(a.maxPods), step(a.maxSeconds)
	a.maxPods, a.maxSeconds = math.Ceil(a.maxPods/a.podStep)*a.podStep, math.Ceil(a.maxSeconds/a.secondStep)*a.secondStep
	return a
}

// step is 1, 2 or 5 times a power of ten, such that there are four to ten of them.
func step(most float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(max(most, 1e-3)/4)))
	for _, factor := range []float64{1, 2, 5} {
		if most/(factor*power) <= 10 {
			return factor * power
		}
	}
	return 10 * power
}

func (a axes) x(pods float64) float64    { return left + (right-left)*pods/a.maxPods }
func (a axes) y(seconds float64) float64 { return base - (base-top)*seconds/a.maxSeconds }

func (a axes) draw(out *strings.Builder) {
	for s := 0.0; s <= a.maxSeconds*1.001; s += a.secondStep {
		fmt.Fprintf(out, `<line class="grid" x1="%g" y1="%.1f" x2="%g" y2="%.1f"/>`, left, a.y(s), right, a.y(s))
		fmt.Fprintf(out, `<text text-anchor="end" x="%g" y="%.1f">%.4g</text>`+"\n", left-8, a.y(s)+4, s)
	}
	for p := 0.0; p <= a.maxPods*1.001; p += a.podStep {
		fmt.Fprintf(out, `<text text-anchor="middle" x="%.1f" y="%g">%.4g</text>`+"\n", a.x(p), base+20, p)
	}
	fmt.Fprintf(out, `<text text-anchor="middle" x="%g" y="%g">pods that change at once</text>`+"\n", (left+right)/2, base+44)
	fmt.Fprintf(out, `<text text-anchor="middle" transform="translate(20 %g) rotate(-90)">seconds until all are visible</text>`+"\n",
		(top+base)/2)
}

func (a axes) series(out *strings.Builder, class string, points []Point, seconds func(Point) float64) {
	var line, dots strings.Builder
	for _, p := range points {
		x, y := a.x(float64(p.Pods)), a.y(seconds(p))
		fmt.Fprintf(&line, "%.1f,%.1f ", x, y)
		fmt.Fprintf(&dots, `<circle class="%s" cx="%.1f" cy="%.1f" r="3.5"/>`, class, x, y)
	}
	fmt.Fprintf(out, `<polyline class="%s" points="%s"/>%s`+"\n", class, strings.TrimSpace(line.String()), dots.String())
}
