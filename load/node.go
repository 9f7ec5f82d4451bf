package load

import "time"

// NodeMonitor computes the load of a node from its samples. It is not safe for concurrent use. The zero value has seen none.
type NodeMonitor struct {
	counters  nodeCounters
	series    nodeSeries
	forecasts map[string]*Forecast // by file system
	last      MachineSample
	lastAt    time.Duration
	seen      bool
	level     Leveler
	levelAt   time.Duration // when the level changed
}

type nodeCounters struct{ total, busy, iowait, steal, rx, tx Counter }

type nodeSeries struct {
	cpu, iowait, steal, memory, pids, received, sent Series
	pressure                                         [5]Series // cpu, memory, memory full, io, io full
}

// NodeMaxAge is the age from which a sample of the node says nothing about the present: three ticks of 10 seconds.
const NodeMaxAge = 30 * time.Second

// Node is the load of a node.
type Node struct {
	Saturation Saturation
	Level      Level
	// LevelSince is when the level was reached, since the start of the agent.
	LevelSince time.Duration
	// CPU, IOWait and Steal are shares of all CPUs; Memory and PIDs shares of what there is.
	CPU, IOWait, Steal, Memory, PIDs Windows
	// Received and Sent are bytes per second.
	Received, Sent Windows
	Pressure       Pressure
	// Cores is the number of CPUs in use.
	Cores       Value
	MemoryBytes MemoryBytes
	FileSystems []FileSystemLoad
	// OOMKills counts the processes that the kernel killed since the boot because memory was short.
	OOMKills Value
}

// MemoryBytes is the memory of a node in bytes.
type MemoryBytes struct{ WorkingSet, Available, Total Value }

// FileSystemLoad is the load of a file system.
type FileSystemLoad struct {
	FileSystem
	// Use and InodeUse are shares. Use counts what the node may use, as df does.
	Use, InodeUse, HoursToFull Value
}

// Windows has the means and maxima of all windows.
type Windows struct{ OneMinute, FiveMinutes, FifteenMinutes Window }

// over returns all windows of a series.
func over(s *Series, now, maxAge time.Duration) Windows {
	return Windows{
		OneMinute:      s.Over(now, Window1m, maxAge),
		FiveMinutes:    s.Over(now, Window5m, maxAge),
		FifteenMinutes: s.Over(now, Window15m, maxAge),
	}
}

// Add adds a sample that was taken at the given time since the start of the agent.
func (m *NodeMonitor) Add(at time.Duration, sample MachineSample) {
	total := m.counters.total.Rate(at, sample.CPUTotal)
	m.series.cpu.Add(at, m.counters.busy.Rate(at, sample.CPUBusy).Share(total))
	m.series.iowait.Add(at, m.counters.iowait.Rate(at, sample.CPUIOWait).Share(total))
	m.series.steal.Add(at, m.counters.steal.Rate(at, sample.CPUSteal).Share(total))
	m.series.memory.Add(at, sample.WorkingSet.Share(sample.MemoryTotal))
	m.series.pids.Add(at, sample.PIDs.Share(sample.MaxPIDs))
	m.series.received.Add(at, m.counters.rx.Rate(at, sample.Network.RxBytes))
	m.series.sent.Add(at, m.counters.tx.Rate(at, sample.Network.TxBytes))
	pressure := sample.Pressure
	for i, value := range []Value{pressure.CPU, pressure.Memory, pressure.MemoryFull, pressure.IO, pressure.IOFull} {
		m.series.pressure[i].Add(at, value)
	}
	if m.forecasts == nil {
		m.forecasts = map[string]*Forecast{}
	}
	for _, fileSystem := range sample.FileSystems {
		forecast, found := m.forecasts[fileSystem.Name]
		if !found {
			forecast = &Forecast{}
			m.forecasts[fileSystem.Name] = forecast
		}
		forecast.Add(at, fileSystem.Used)
	}
	isFirst := !m.seen
	m.last, m.lastAt, m.seen = sample, at, true
	if isFirst { // without rates, so that the use of the CPU is not known: it sets no level
		return
	}
	before := m.level.Level()
	if m.level = m.level.Next(at, Saturate(m.signals(at)).Value); m.level.Level() != before {
		m.levelAt = at
	}
}

// Load returns the load now. What was not sampled recently is unknown; the level stays.
func (m *NodeMonitor) Load(now time.Duration) Node {
	node := Node{
		Saturation: Saturate(m.signals(now)), Level: m.level.Level(), LevelSince: m.levelAt,
		CPU: over(&m.series.cpu, now, NodeMaxAge), IOWait: over(&m.series.iowait, now, NodeMaxAge), Steal: over(&m.series.steal, now, NodeMaxAge),
		Memory: over(&m.series.memory, now, NodeMaxAge), PIDs: over(&m.series.pids, now, NodeMaxAge),
		Received: over(&m.series.received, now, NodeMaxAge), Sent: over(&m.series.sent, now, NodeMaxAge),
	}
	for i, value := range []*Value{
		&node.Pressure.CPU, &node.Pressure.Memory, &node.Pressure.MemoryFull, &node.Pressure.IO, &node.Pressure.IOFull,
	} {
		*value = m.series.pressure[i].Last(now, NodeMaxAge)
	}
	if !m.isFresh(now) {
		return node
	}
	node.MemoryBytes = MemoryBytes{WorkingSet: m.last.WorkingSet, Available: m.last.MemoryAvailable, Total: m.last.MemoryTotal}
	node.OOMKills, node.FileSystems = m.last.OOMKills, m.fileSystems()
	busy, busyKnown := node.CPU.OneMinute.Mean.Get()
	if cpus, known := m.last.CPUs.Get(); known && busyKnown {
		node.Cores = Known(busy * cpus)
	}
	return node
}

// Point returns the newest values for the track of a day.
func (m *NodeMonitor) Point(now time.Duration) NodePoint {
	signals := m.signals(now)
	return NodePoint{
		Saturation: Saturate(signals).Value, CPU: m.series.cpu.Last(now, NodeMaxAge), Memory: m.series.memory.Last(now, NodeMaxAge),
		Disk: signals.Disk, IOPressure: signals.IOPressure, MemoryPressure: signals.MemoryPressure,
	}
}

// RestoreLevel sets the level that an earlier agent had reached at the given time, which may be negative.
func (m *NodeMonitor) RestoreLevel(level Level, at time.Duration) {
	for i := range levels {
		if levels[i].level == level {
			m.level, m.levelAt = Leveler{index: i + 1, above: -1, below: -1}, at
		}
	}
}

// Sample returns the newest sample and when it was taken, and false if it says nothing about the present.
func (m *NodeMonitor) Sample(now time.Duration) (sample MachineSample, at time.Duration, recent bool) {
	return m.last, m.lastAt, m.isFresh(now)
}

func (m *NodeMonitor) isFresh(now time.Duration) bool { return m.seen && now-m.lastAt <= NodeMaxAge }

func (m *NodeMonitor) fileSystems() []FileSystemLoad {
	loads := make([]FileSystemLoad, len(m.last.FileSystems))
	for i, fileSystem := range m.last.FileSystems {
		loads[i] = FileSystemLoad{
			FileSystem: fileSystem, Use: useOf(fileSystem), InodeUse: fileSystem.InodeUsed.Share(fileSystem.Inodes),
			HoursToFull: m.forecasts[fileSystem.Name].HoursToFull(fileSystem.Available),
		}
	}
	return loads
}

// useOf returns used/(used+available): the rest is reserved for root.
func useOf(f FileSystem) Value {
	available, known := f.Available.Get()
	used, usedKnown := f.Used.Get()
	if !known || !usedKnown {
		return Value{}
	}
	return Known(used).Share(Known(used + available))
}

// signals returns the inputs of the saturation: means of the last minute.
func (m *NodeMonitor) signals(now time.Duration) Signals {
	minute := func(s *Series) Value { return s.Over(now, Window1m, NodeMaxAge).Mean }
	signals := Signals{
		CPU: minute(&m.series.cpu), Memory: minute(&m.series.memory), PIDs: minute(&m.series.pids),
		CPUPressure: m.series.pressure[0].Last(now, NodeMaxAge), MemoryPressure: m.series.pressure[1].Last(now, NodeMaxAge),
		IOPressure: m.series.pressure[3].Last(now, NodeMaxAge),
	}
	if !m.isFresh(now) {
		return signals
	}
	for _, fileSystem := range m.fileSystems() {
		signals.Disk, signals.Inodes = larger(signals.Disk, fileSystem.Use), larger(signals.Inodes, fileSystem.InodeUse)
		hours, known := fileSystem.HoursToFull.Get()
		if soonest, found := signals.HoursToFull.Get(); known && (!found || hours < soonest) {
			signals.HoursToFull = fileSystem.HoursToFull
		}
	}
	return signals
}
