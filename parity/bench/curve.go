package bench

import (
	"context"
	"fmt"
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
