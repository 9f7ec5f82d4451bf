package disk_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/stats/disk"
	"github.com/heraldnode/herald/stats/summary"
)

// fakeDisk has one volume per pod. Each measurement takes a while and finds one more byte.
type fakeDisk struct {
	duration time.Duration
	err      error
	measured int
}

func (d *fakeDisk) VolumeStats(ctx context.Context, _ *v1.Pod) ([]summary.Volume, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(d.duration):
	}
	d.measured++
	return []summary.Volume{{Name: "data", Usage: summary.Usage{Bytes: load.Known(float64(d.measured))}}}, d.err
}

func (d *fakeDisk) LogStats(context.Context, *v1.Pod) (map[string]summary.Usage, summary.Usage, error) {
	return map[string]summary.Usage{"main": {Bytes: load.Known(7)}}, summary.Usage{}, nil
}

func newMeter(t *testing.T, fake *fakeDisk) *disk.Meter {
	t.Helper()
	meter, err := disk.New(disk.Config{Volumes: fake, Logs: fake})
	if err != nil {
		t.Fatal(err)
	}
	return meter
}

func requireBytes(t *testing.T, what string, got load.Value, want float64) {
	t.Helper()
	if value, known := got.Get(); !known || value != want {
		t.Errorf("%s: got %v (known %v), want %v", what, value, known, want)
	}
}

func uidOf(pod *v1.Pod) podid.UID { return podid.UID(pod.UID) }

func TestRES23_DiskIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, pod := &fakeDisk{}, heraldtest.NewPod("web")
		meter := newMeter(t, fake)
		for _, step := range []struct {
			after time.Duration
			want  float64
		}{{0, 1}, {30 * time.Second, 1}, {31 * time.Second, 2}} {
			time.Sleep(step.after)
			disks, err := meter.Measure(t.Context(), []*v1.Pod{pod})
			if err != nil {
				t.Fatal(err)
			}
			requireBytes(t, "volume", disks[uidOf(pod)].Volumes[0].Bytes, step.want)
			requireBytes(t, "logs", disks[uidOf(pod)].Logs["main"].Bytes, 7)
		}
		if disks, _ := meter.Measure(t.Context(), nil); len(disks) != 0 {
			t.Errorf("a pod that is gone has %v", disks)
		}
	})
}

func TestMeter_Budget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeDisk{duration: 4 * time.Second}
		meter := newMeter(t, fake)
		var pods []*v1.Pod
		for i := range 5 {
			pods = append(pods, heraldtest.NewPod(fmt.Sprint("pod", i)))
		}
		disks, err := meter.Measure(t.Context(), pods)
		if !errors.Is(err, context.DeadlineExceeded) || len(disks) != 2 {
			t.Fatalf("got %d pods, error %v; want 2 within the budget", len(disks), err)
		}
		disks, _ = meter.Measure(t.Context(), pods)
		if len(disks) != 4 { // the second call continues with those that are missing
			t.Errorf("got %d pods, want 4", len(disks))
		}
	})
}

func TestRES29_PartOfDiskFails(t *testing.T) {
	fake, pod := &fakeDisk{err: errors.New("broken")}, heraldtest.NewPod("web")
	disks, err := newMeter(t, fake).Measure(t.Context(), []*v1.Pod{pod})
	if !errors.Is(err, fake.err) || disks[uidOf(pod)] == nil {
		t.Errorf("got %v, error %v; want the rest and the error", disks, err)
	}
}
