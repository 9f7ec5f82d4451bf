package bench

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
)

// Point is a burst of one size, in seconds until all pods are visible.
type Point struct {
	Pods            int
	Kubelet, Herald float64
}

// MeasureCurve measures bursts of several sizes with 5 ms added to each request.
func MeasureCurve(ctx context.Context, env *Environment, sizes ...int) ([]Point, error) {
	var points []Point
	for _, pods := range sizes {
		env.logf("%d pods become Running, 5ms added to each request", pods)
		b := burst{pods: pods, conn: connection{delay: 5 * time.Millisecond}}
		took, err := measureRounds(min(env.Profile.BurstRounds, 3), env.burstTimer(ctx, b, startKubelet), env.burstTimer(ctx, b, startHerald))
		if err != nil {
			return nil, fmt.Errorf("burst of %d pods: %w", pods, err)
		}
		points = append(points, Point{Pods: pods, Kubelet: median(took[0]), Herald: median(took[1])})
	}
	return points, nil
}

// The size of the plot and the position of its axes.
const (
	plotWidth, plotHeight  = 720, 400
	left, right, top, base = 64.0, 696.0, 56.0, 340.0
)

// renderPlot renders the curve as SVG: pods against seconds. Colours and background follow the reader's light or dark
// mode, so that the plot is readable on any page.
func renderPlot(points []Point) string {
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
<text class="head" x="%g" y="28">Pods become Running at once, 5 ms added to each request</text>
`, plotWidth, plotHeight, left)
	axes := newAxes(points)
	axes.drawGrid(&out)
	axes.drawSeries(&out, "kubelet", points, func(p Point) float64 { return p.Kubelet })
	axes.drawSeries(&out, "herald", points, func(p Point) float64 { return p.Herald })
	for i, name := range []string{"kubelet", "Herald"} {
		y := top + 8 + 22*float64(i)
		fmt.Fprintf(&out, `<line class="%s" x1="%g" y1="%g" x2="%g" y2="%g"/><text x="%g" y="%g">%s</text>`+"\n",
			strings.ToLower(name), left+20, y, left+48, y, left+56, y+4, name)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// axes maps pods and seconds to coordinates. Both start at zero.
type axes struct{ maxPods, maxSeconds, podStep, secondStep float64 }

func newAxes(points []Point) axes {
	a := axes{}
	for _, p := range points {
		a.maxPods = max(a.maxPods, float64(p.Pods))
		a.maxSeconds = max(a.maxSeconds, p.Kubelet, p.Herald)
	}
	a.podStep, a.secondStep = axisStep(a.maxPods), axisStep(a.maxSeconds)
	a.maxPods, a.maxSeconds = math.Ceil(a.maxPods/a.podStep)*a.podStep, math.Ceil(a.maxSeconds/a.secondStep)*a.secondStep
	return a
}

// axisStep returns 1, 2 or 5 times a power of ten, such that the axis has four to ten steps.
func axisStep(most float64) float64 {
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

func (a axes) drawGrid(out *strings.Builder) {
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

func (a axes) drawSeries(out *strings.Builder, class string, points []Point, seconds func(Point) float64) {
	var line, dots strings.Builder
	for _, p := range points {
		x, y := a.x(float64(p.Pods)), a.y(seconds(p))
		fmt.Fprintf(&line, "%.1f,%.1f ", x, y)
		fmt.Fprintf(&dots, `<circle class="%s" cx="%.1f" cy="%.1f" r="3.5"/>`, class, x, y)
	}
	fmt.Fprintf(out, `<polyline class="%s" points="%s"/>%s`+"\n", class, strings.TrimSpace(line.String()), dots.String())
}
