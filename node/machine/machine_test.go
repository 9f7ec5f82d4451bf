package machine_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/eviction"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/node/machine"
	"github.com/heraldnode/herald/node/report"
)

// files returns the files of a small machine.
func files() map[string]string {
	return map[string]string{
		"etc/machine-id":                  "0123456789abcdef\n",
		"etc/os-release":                  "NAME=Debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
		"proc/sys/kernel/random/boot_id":  "boot\n",
		"proc/sys/kernel/osrelease":       "6.1.0\n",
		"proc/sys/kernel/pid_max":         "1000\n",
		"proc/sys/kernel/threads-max":     "5000\n",
		"proc/loadavg":                    "0.10 0.20 0.30 2/400 12345\n",
		"proc/meminfo":                    "MemTotal:        2048 kB\nMemFree:          1 kB\nMemAvailable:    1024 kB\nSwapTotal: 512 kB\nSwapFree: 1 kB\n",
		"proc/net/route":                  "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\neth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n",
		"sys/devices/system/cpu/online":   "0-2,5\n",
		"sys/class/dmi/id/product_serial": "unused\n",
	}
}

func TestBootTime(t *testing.T) {
	for name, test := range map[string]struct {
		stat string
		want time.Time
	}{
		"known":   {"cpu  1 2 3\nctxt 5\nbtime 1700000000\nprocesses 7\n", time.Unix(1700000000, 0)},
		"unknown": {"cpu  1 2 3\n", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.Mkdir(filepath.Join(root, "proc"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "proc/stat"), []byte(test.stat), 0o600); err != nil {
				t.Fatal(err)
			}
			m, err := machine.New(machine.Config{DataDir: root, Root: root, Hostname: "a"})
			if err != nil {
				t.Fatal(err)
			}
			if got := m.BootTime(); !got.Equal(test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func readInfo(t *testing.T, content map[string]string, change ...func(*machine.Config)) (report.MachineInfo, error) {
	t.Helper()
	root := t.TempDir()
	for name, text := range content {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := machine.Config{
		DataDir: root, Root: root, Hostname: "host-a", Version: "v0.3.0",
		Interfaces: func() ([]machine.Interface, error) { return interfaces(), nil },
	}
	for _, mutate := range change {
		mutate(&config)
	}
	m, err := machine.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return m.Info()
}

func interfaces() []machine.Interface {
	return []machine.Interface{
		{Name: "lo", Addresses: parse("127.0.0.1", "::1")},
		{Name: "bridge", Addresses: parse("10.1.0.1", "2001:db8:1::1")},
		{Name: "eth0", Addresses: parse("fe80::1", "192.0.2.7", "2001:db8::7")},
		{Name: "eth1", Addresses: parse("192.0.2.8")},
	}
}

func parse(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func TestInfo_Files(t *testing.T) {
	got, err := readInfo(t, files())
	if err != nil {
		t.Fatal(err)
	}
	system := got.System
	if diff := cmp.Diff([]string{"0123456789abcdef", "0123456789abcdef", "boot", "6.1.0", "Debian GNU/Linux 12 (bookworm)", "v1.36.3+herald.0.3.0"},
		[]string{system.MachineID, system.SystemUUID, system.BootID, system.KernelVersion, system.OSImage, system.KubeletVersion}); diff != "" {
		t.Errorf("system (-want +got):\n%s", diff)
	}
	if got.CPUs != 4 || got.Hostname != "host-a" {
		t.Errorf("got %d CPUs, hostname %q", got.CPUs, got.Hostname)
	}
	if want := (report.Amount{Total: 2 << 20, Available: 1 << 20}); got.Memory != want {
		t.Errorf("got memory %v, want %v", got.Memory, want)
	}
	if swap := system.Swap; swap == nil || *swap.Capacity != 512<<10 { // RES-6
		t.Errorf("got swap %v", swap)
	}
	if want := (report.Amount{Total: 1000, Available: 600}); got.PIDs != want {
		t.Errorf("got PIDs %v, want %v", got.PIDs, want)
	}
	if got.Storage.Total <= 0 || got.Storage.Available > got.Storage.Total {
		t.Errorf("got storage %v", got.Storage)
	}
	if diff := cmp.Diff([]string{"192.0.2.7", "2001:db8::7"}, texts(got.Addresses)); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func texts(list []netip.Addr) []string {
	var texts []string
	for _, address := range list {
		texts = append(texts, address.String())
	}
	return texts
}

func TestInfo_MissingFiles(t *testing.T) {
	tests := map[string]struct {
		file, content string
		want          string // error, or empty
	}{
		"no machine ID":    {file: "etc/machine-id"},
		"no release":       {file: "etc/os-release"},
		"no limit of PIDs": {file: "proc/sys/kernel/pid_max"},
		"no load":          {file: "proc/loadavg", content: "x"},
		"no routes":        {file: "proc/net/route"},
		"no CPUs":          {file: "sys/devices/system/cpu/online", content: "many", want: `online: "many" is not a range of CPUs`},
		"reversed range":   {file: "sys/devices/system/cpu/online", content: "5-2", want: `"5-2"`},
		"no memory":        {file: "proc/meminfo", content: "nothing\n", want: "MemTotal is missing"},
		"zero memory":      {file: "proc/meminfo", content: "MemTotal: 0 kB\n", want: "MemTotal is missing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			content := files()
			content[test.file] = test.content
			_, err := readInfo(t, content)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestInfo_ConfiguredAddresses(t *testing.T) {
	got, err := readInfo(t, files(), func(c *machine.Config) { c.Addresses = parse("203.0.113.1") })
	if err != nil || len(got.Addresses) != 1 || got.Addresses[0].String() != "203.0.113.1" {
		t.Errorf("got %v, error %v", got.Addresses, err)
	}
}

func TestSelectAddresses(t *testing.T) {
	tests := map[string]struct {
		route4, route6 string
		want           []string
	}{
		"both families":            {"eth0", "eth0", []string{"192.0.2.7", "2001:db8::7"}},
		"IPv4 route only":          {"eth1", "", []string{"192.0.2.8"}},
		"IPv6 route only":          {"", "eth0", []string{"192.0.2.7", "2001:db8::7"}},
		"no routes":                {"", "", []string{"10.1.0.1", "2001:db8:1::1"}},
		"no address on IPv4 route": {"wg0", "", []string{"10.1.0.1"}},
		"no address on IPv6 route": {"", "wg0", []string{"2001:db8:1::1"}},
		"different interfaces":     {"eth1", "bridge", []string{"192.0.2.8", "2001:db8:1::1"}},
		"loopback":                 {"lo", "lo", []string{"10.1.0.1", "2001:db8:1::1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, texts(machine.SelectAddresses(interfaces(), test.route4, test.route6))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefaultRoute(t *testing.T) {
	const head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
	tests := map[string]struct{ table, want string }{
		"no table":     {},
		"no default":   {table: head + "eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n"},
		"one":          {head + "eth0 00000000 010200C0 0003 0 0 100 00000000 0 0 0\n", "eth0"},
		"lower metric": {head + "eth0 00000000 010200C0 0003 0 0 100 00000000 0 0 0\nwlan0 00000000 010200C0 0003 0 0 50 00000000 0 0 0\n", "wlan0"},
		"down":         {head + "eth0 00000000 010200C0 0002 0 0 0 00000000 0 0 0\n", ""},
		"half default": {head + "tun0 00000000 010200C0 0003 0 0 0 00000080 0 0 0\n", ""},
		"garbage":      {"eth0 00000000 x y z\neth0 00000000 010200C0 x 0 0 x 00000000\n", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := machine.DefaultRoute([]byte(test.table)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestDefaultRoute6(t *testing.T) {
	const zero = "00000000000000000000000000000000"
	via := func(metric, flags, device string) string {
		return zero + " 00 " + zero + " 00 fe800000000000000000000000000001 " + metric + " 00000001 00000000 " + flags + " " + device + "\n"
	}
	tests := map[string]struct{ table, want string }{
		"no table":     {},
		"unreachable":  {via("ffffffff", "00200200", "lo"), ""},
		"rejected":     {via("ffffffff", "00000201", "lo"), ""},
		"one":          {via("00000400", "00000003", "eth0"), "eth0"},
		"lower metric": {via("00000400", "00000003", "eth0") + via("00000064", "00000003", "wlan0"), "wlan0"},
		"garbage":      {"x y z\n" + zero + " 00 1 2 3 x 5 6 y eth0\n", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := machine.DefaultRoute6([]byte(test.table)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestInfo_KubeletVersion(t *testing.T) {
	semantic := regexp.MustCompile(`^v1\.36\.3\+herald(\.[0-9A-Za-z-]+)*$`)
	for _, own := range []string{"", "v0.3.0", "0.3.0-rc.1+dirty", "main (abc)", "(devel)", "..", "a..b"} {
		got, err := readInfo(t, files(), func(c *machine.Config) { c.Version = own })
		if err != nil || !semantic.MatchString(got.System.KubeletVersion) {
			t.Errorf("%q: got %q, error %v", own, got.System.KubeletVersion, err)
		}
	}
}

func TestInfo_ThisMachine(t *testing.T) {
	m, err := machine.New(machine.Config{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Info()
	if err != nil {
		t.Fatal(err)
	}
	if got.CPUs < 1 || got.Memory.Total <= got.Memory.Available || got.Storage.Total <= 0 || got.System.BootID == "" || got.Hostname == "" {
		t.Errorf("got %+v", got)
	}
}

func TestInfo_LogFileSystem(t *testing.T) {
	heraldtest.InMountNamespace(t, func() {
		logs := t.TempDir()
		if err := unix.Mount("tmpfs", logs, "tmpfs", 0, "size=1m,nr_inodes=100"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // the directory is removed next
			if err := unix.Unmount(logs, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		if err := os.WriteFile(filepath.Join(logs, "0.log"), make([]byte, 960<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		for dir, want := range map[string]report.FileSystem{
			"":            {},
			logs + "/new": {},
			logs:          {Storage: report.Amount{Total: 1 << 20, Available: 64 << 10}, Inodes: report.Amount{Total: 100, Available: 98}},
		} {
			got, err := readInfo(t, files(), func(c *machine.Config) { c.LogDir = dir })
			if err != nil || got.Logs != want {
				t.Errorf("%q: got %+v and %v, want %+v", dir, got.Logs, err, want)
			}
			policy := eviction.DefaultPolicy()
			observed := eviction.Input{Observations: report.Observations(report.MachineInfo{Logs: got.Logs}), Now: time.Now()}
			if _, verdict := policy.Observe(eviction.State{}, observed); len(verdict.Conditions) > 0 != (dir == logs) {
				t.Errorf("%q: got pressure %v", dir, verdict.Conditions)
			}
		}
	})
}

func TestConfig_DataDir(t *testing.T) {
	if _, err := machine.New(machine.Config{}); err == nil || !strings.Contains(err.Error(), "DataDir") {
		t.Errorf("got %v, want an error about DataDir", err)
	}
	if _, err := readInfo(t, files(), func(c *machine.Config) { c.DataDir = filepath.Join(t.TempDir(), "none") }); err == nil {
		t.Error("Info succeeded without the data directory")
	}
}

func FuzzDefaultRoute(f *testing.F) {
	f.Add([]byte("eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0\n"))
	f.Fuzz(func(_ *testing.T, table []byte) {
		machine.DefaultRoute(table)
		machine.DefaultRoute6(table)
	})
}
