package load

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/heraldnode/herald/podid"
)

const (
	nodeStep = time.Minute
	podStep  = 5 * time.Minute
	// maxPodTracks bounds the memory: each takes 4.6 KB. Further pods have no track.
	maxPodTracks = 512
	// podAbsence is for how many slots a pod may have no samples before its track is removed.
	podAbsence = 3
)

// NodePoint has the newest values of a node's signals.
type NodePoint struct{ Saturation, CPU, Memory, Disk, IOPressure, MemoryPressure Value }

// NodeSignals and PodSignals name the signals of tracks, in their order. CPU and memory of a node are shares, those of pods cores and
// bytes.
var (
	NodeSignals = []string{"saturation", "cpu", "memory", "disk", "ioPressure", "memoryPressure"}
	PodSignals  = []string{"cpu", "cpuMax", "memory", "memoryMax"}
)

// Day has the load of a node and its pods over the last 24 hours: a value a minute of the node, and one in five minutes of each pod. It
// is not safe for concurrent use.
type Day struct {
	node Track
	pods map[podid.UID]*Track
}

// NewDay returns an empty Day.
func NewDay() *Day {
	return &Day{node: newTrack(nodeStep, make([]bool, len(NodeSignals))...), pods: map[podid.UID]*Track{}}
}

func newPodTrack() *Track { return new(newTrack(podStep, false, true, false, true)) }

// AddNode adds the values of the node.
func (d *Day) AddNode(at time.Time, p NodePoint) {
	d.node.Add(at, p.Saturation, p.CPU, p.Memory, p.Disk, p.IOPressure, p.MemoryPressure)
}

// AddPod adds the values of a pod: cores and bytes.
func (d *Day) AddPod(at time.Time, uid podid.UID, cpu, memory Value) {
	track, found := d.pods[uid]
	if !found {
		if len(d.pods) >= maxPodTracks {
			return
		}
		track = newPodTrack()
		d.pods[uid] = track
	}
	track.Add(at, cpu, cpu, memory, memory)
}

// Prune removes the tracks of pods that were not added for a while. Call it after all pods of a tick were added.
func (d *Day) Prune(at time.Time) {
	slot := at.UnixNano() / int64(podStep)
	maps.DeleteFunc(d.pods, func(_ podid.UID, track *Track) bool { return slot-track.newest > podAbsence })
}

// Node returns the points of the node.
func (d *Day) Node(since time.Time) Points { return d.node.Since(since) }

// Pod returns the points of a pod, and false if it has none.
func (d *Day) Pod(uid podid.UID, since time.Time) (Points, bool) {
	track, found := d.pods[uid]
	if !found {
		return Points{Step: podStep}, false
	}
	return track.Since(since), true
}

// Pods returns the number of pods.
func (d *Day) Pods() int { return len(d.pods) }

// dayHeader is the first part of an encoded Day. The slots follow as little-endian numbers: those of the node, then those of each pod.
type dayHeader struct {
	Level SavedLevel       `json:"level"`
	Node  int64            `json:"node"` // the newest slot
	Pods  []podTrackHeader `json:"pods"`
}

// SavedLevel is the level of the node's load when a Day was encoded: since when, and as of when.
type SavedLevel struct {
	Level Level     `json:"level"`
	Since time.Time `json:"since"`
	At    time.Time `json:"at"`
}

type podTrackHeader struct {
	UID    podid.UID `json:"uid"`
	Newest int64     `json:"newest"`
}

// Encode returns the Day and the level in the form that DecodeDay reads.
func (d *Day) Encode(level SavedLevel) []byte {
	header := dayHeader{Level: level, Node: d.node.newest}
	uids := slices.Sorted(maps.Keys(d.pods))
	for _, uid := range uids {
		header.Pods = append(header.Pods, podTrackHeader{UID: uid, Newest: d.pods[uid].newest})
	}
	text, err := json.Marshal(header)
	if err != nil { // the year of a time is above 9999
		header.Level = SavedLevel{}
		text, _ = json.Marshal(header)
	}
	encoded := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	encoded = d.node.appendSlots(append(encoded, text...))
	for _, uid := range uids {
		encoded = d.pods[uid].appendSlots(encoded)
	}
	return encoded
}

var errDay = errors.New("invalid load of a day")

// DecodeDay returns what Encode was given.
func DecodeDay(encoded []byte) (*Day, SavedLevel, error) {
	if len(encoded) < 4 || uint64(binary.LittleEndian.Uint32(encoded)) > uint64(len(encoded)-4) {
		return nil, SavedLevel{}, errDay
	}
	length, rest := int(binary.LittleEndian.Uint32(encoded)), encoded[4:]
	var header dayHeader
	if err := json.Unmarshal(rest[:length], &header); err != nil {
		return nil, SavedLevel{}, fmt.Errorf("%w: %w", errDay, err)
	}
	rest = rest[length:]
	d := NewDay()
	if len(header.Pods) > maxPodTracks || !d.node.readSlots(&rest, header.Node) {
		return nil, SavedLevel{}, errDay
	}
	for _, pod := range header.Pods {
		track := newPodTrack()
		if !track.readSlots(&rest, pod.Newest) {
			return nil, SavedLevel{}, errDay
		}
		d.pods[pod.UID] = track
	}
	if len(rest) > 0 {
		return nil, SavedLevel{}, errDay
	}
	return d, header.Level, nil
}

func (t *Track) appendSlots(encoded []byte) []byte {
	for i := range t.signals {
		for _, number := range t.signals[i].slots {
			encoded = binary.LittleEndian.AppendUint32(encoded, math.Float32bits(number))
		}
	}
	return encoded
}

// readSlots takes the slots from the beginning of encoded. A slot that was not complete goes on as one with one sample.
func (t *Track) readSlots(encoded *[]byte, newest int64) bool {
	if newest < 0 {
		return false
	}
	t.newest = newest
	for i := range t.signals {
		s := &t.signals[i]
		if len(*encoded) < 4*len(s.slots) {
			return false
		}
		for n := range s.slots {
			s.slots[n] = math.Float32frombits(binary.LittleEndian.Uint32((*encoded)[4*n:]))
		}
		*encoded = (*encoded)[4*len(s.slots):]
		if !math.IsNaN(float64(s.slots[newest%int64(len(s.slots))])) {
			s.count = 1
		}
	}
	return true
}
