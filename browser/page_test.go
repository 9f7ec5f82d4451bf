package browser_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const (
	isLive   = `document.getElementById('freshness')?.textContent === 'live'`
	podNames = `[...document.querySelectorAll('.pods tbody th')].map((e) => e.textContent)`
)

func status(name string) string {
	return fmt.Sprintf(`(document.querySelector('[data-key="shop/%s"] [data-head=Status]')?.textContent ?? '')`, name)
}

func openShop(t *testing.T, args ...string) (*node, *tab, string) {
	t.Helper()
	n := newNode(t, shop)
	b := newTab(t)
	address := startUI(t, n.address(), args...)
	b.open(address)
	b.wait(isLive)
	b.wait(status("web-n1") + ` === 'Running'`)
	return n, b, address
}

// wantQuiet fails if the browser complained, or asked another server for anything.
func wantQuiet(t *testing.T, b *tab, address string) {
	t.Helper()
	origin := address[:strings.Index(address, "#")]
	problems, requests := b.findings()
	if len(problems) > 0 {
		t.Errorf("the browser says: %q", problems)
	}
	for _, request := range requests {
		if !strings.HasPrefix(request, origin) {
			t.Errorf("P3: a request to %s", request)
		}
	}
}

// P1: the page shows the pods that there are, worst first, with what is wrong. P3: nothing leaves the machine. P4: no markup from data.
func TestP1_ShowsPods(t *testing.T) {
	_, b, address := openShop(t)
	b.wait(status("cart-n1") + ` === 'CrashLoopBackOff'`)
	b.wait(`document.querySelector('[data-key="shop/slow-n1"] [data-head=Why]').textContent.includes('readiness probe')`)
	b.wait(podNames + `.join() === 'shop/cart-n1,shop/slow-n1,shop/web-n1'`)
	b.wait(`document.querySelector('[data-key="shop/web-n1"] .strip') !== null`)
	b.wait(`document.querySelector('.alerts')?.textContent.includes('PodCrashLooping') ?? false`)
	b.screenshot("list")
	b.run(chromedp.Evaluate(`location.hash = '#/pods/shop/cart-n1'`, nil))
	b.wait(`[...document.querySelectorAll('pre')].some((e) => e.textContent.includes('<img src=x onerror'))`) // P4
	b.wait(`/in \d+s|now/.test(document.querySelector('article strong')?.textContent ?? '')`)
	b.wait(`document.querySelectorAll('.timeline rect').length > 2`)
	if images := value[int](b, `document.querySelectorAll('img, script:not([src])').length`); images != 0 {
		t.Errorf("P4: %d elements from data", images)
	}
	b.screenshot("pod")
	wantQuiet(t, b, address)
}

// A container that is killed shows without a reload.
func TestP1_KilledPodShows(t *testing.T) {
	n, b, _ := openShop(t, "--act")
	b.run(chromedp.Evaluate(`window.shownAt = 0; new MutationObserver(() => {
		const restarts = document.querySelector('[data-key="shop/web-n1"] [data-head=Restarts]').textContent;
		if (restarts === '1' && !window.shownAt) window.shownAt = Date.now();
	}).observe(document.querySelector('.pods'), {subtree: true, childList: true, characterData: true})`, nil))
	out, err := n.herald("restart", "web-n1", "-n", "shop", "--reason", "test")
	restartedAt := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	b.wait(`window.shownAt > 0`)
	t.Logf("shown %v after 'herald restart' ended: %s", time.UnixMilli(value[int64](b, `window.shownAt`)).Sub(restartedAt), strings.TrimSpace(out))
}

// An agent that is killed leaves a page that says how old it is; the next one is followed without a reload, a gap or a duplicate.
func TestP1_AgentRestart(t *testing.T) {
	n, b, _ := openShop(t)
	b.run(chromedp.Evaluate(`window.marker = 1`, nil))
	n.stop()
	b.wait(`/^stale: as of .* ago/.test(document.getElementById('freshness').textContent)`)
	if names := value[[]string](b, podNames); len(names) != 3 {
		t.Errorf("a dead agent: got %v, want the pods as they were", names)
	}
	b.screenshot("stale")
	n.write("new", pod("new", `[sleep, "100000"]`, ""))
	if err := os.Remove(filepath.Join(n.dir, "pods", "slow.yaml")); err != nil {
		t.Fatal(err)
	}
	n.start()
	b.wait(isLive)
	b.wait(status("new-n1") + ` === 'Running'`)
	b.wait(`document.querySelector('[data-key="shop/slow-n1"]') === null`)
	eventually(t, func() error {
		names := value[[]string](b, podNames)
		slices.Sort(names)
		out, err := n.herald("get", "pods", "-A", "--no-headers")
		var want []string
		for line := range strings.Lines(out) {
			fields := strings.Fields(line)
			want = append(want, fields[0]+"/"+fields[1])
		}
		slices.Sort(want)
		if err != nil || !slices.Equal(names, want) {
			return fmt.Errorf("got %v, want %v, %w", names, want, err)
		}
		return nil
	})
	if value[int](b, `window.marker ?? 0`) != 1 {
		t.Error("the page was loaded again")
	}
}

// A code works once, and without one there is nothing.
func TestP2_Code(t *testing.T) {
	_, _, address := openShop(t)
	other := newTab(t)
	other.open(address)
	other.wait(`document.getElementById('notice').textContent.includes("run 'herald ui' again")`)
	if names := value[[]string](other, podNames); len(names) != 0 {
		t.Errorf("got %v without a token", names)
	}
	response, err := http.Get(address[:strings.Index(address, "#")] + "herald/v1/pods") //nolint:noctx // local
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("got %d, want 401", response.StatusCode)
	}
}

// Everything can be done with the keyboard.
func TestKeyboard(t *testing.T) {
	_, b, _ := openShop(t)
	focused := `document.activeElement.textContent`
	key := func(keys string) { b.run(chromedp.KeyEvent(keys)) }
	key("j")
	b.wait(focused + ` === 'shop/cart-n1'`)
	key("j")
	b.wait(focused + ` === 'shop/slow-n1'`)
	key("k")
	key(kb.Enter)
	b.wait(`location.hash === '#/pods/shop/cart-n1' && ` + focused + ` === 'shop/cart-n1'`)
	b.wait(`document.querySelector('.lanes') !== null`)
	key(kb.Escape)
	b.wait(`document.querySelectorAll('.pods tbody tr').length === 3`)
	key("/")
	b.wait(`document.activeElement.id === 'filter'`)
	b.run(chromedp.KeyEvent("web"))
	b.wait(podNames + `.join() === 'shop/web-n1'`)
	key(kb.Escape)
	key("?")
	b.wait(`document.getElementById('help').open`)
	key(kb.Escape)
	b.wait(`!document.getElementById('help').open`)
}

// With --act the page checks a probe and restarts a container; without it there are no buttons.
func TestAct(t *testing.T) {
	_, b, _ := openShop(t, "--act")
	b.run(chromedp.Evaluate(`location.hash = '#/pods/shop/web-n1'`, nil))
	button := func(label string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('button')].find((e) => e.textContent === '%s')`, label)
	}
	b.wait(button("Check") + ` !== undefined`)
	b.run(chromedp.Evaluate(button("Check")+`.click()`, nil))
	b.wait(button("Check") + `.nextSibling.textContent.trim().startsWith('ok')`)
	b.run(chromedp.Evaluate(button("Restart")+`.click()`, nil))
	b.wait(`document.querySelector('article').innerText.includes('exit 143')`)
	_, reader, _ := openShop(t)
	if buttons := value[int](reader, `document.querySelectorAll('main button').length`); buttons != 0 {
		t.Errorf("got %d buttons on a page that only reads", buttons)
	}
}

// At 320 pixels nothing is cut off, and with dark colours and doubled text neither.
func TestNarrowAndDark(t *testing.T) {
	_, b, _ := openShop(t)
	b.run(emulation.SetDeviceMetricsOverride(320, 640, 1, true))
	b.wait(isLive)
	if width := value[int](b, `document.documentElement.scrollWidth`); width > 320 {
		t.Errorf("the list is %d pixels wide", width)
	}
	b.screenshot("narrow")
	b.run(chromedp.Evaluate(`location.hash = '#/pods/shop/web-n1'`, nil))
	b.wait(`document.querySelector('.lanes') !== null`)
	if width := value[int](b, `document.documentElement.scrollWidth`); width > 320 {
		t.Errorf("the pod is %d pixels wide", width)
	}
	b.run(emulation.SetDeviceMetricsOverride(1200, 800, 1, false), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
	b.run(chromedp.Evaluate(`location.hash = '#/'`, nil))
	b.wait(isLive)
	b.screenshot("dark")
}
