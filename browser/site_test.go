package browser_test

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// newSite renders the documents.
func newSite(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), "go", "run", ".", "-root", "..", "-out", dir)
	command.Dir = "../site"
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// wantOnly fails if the browser complained, or loaded anything from elsewhere.
func wantOnly(t *testing.T, b *tab, prefix string) {
	t.Helper()
	problems, requests := b.findings()
	if len(problems) > 0 {
		t.Errorf("the browser says: %q", problems)
	}
	for _, request := range requests {
		if !strings.HasPrefix(request, prefix) {
			t.Errorf("a request to %s", request)
		}
	}
}

// The documents can be read and searched with the keyboard, from a file and below a path of a server, without a request to elsewhere.
func TestSite(t *testing.T) {
	dir := newSite(t)
	server := httptest.NewServer(http.StripPrefix("/deep/docs", http.FileServer(http.Dir(dir))))
	t.Cleanup(server.Close)
	for name, prefix := range map[string]string{"file": "file://" + dir + "/", "path": server.URL + "/deep/docs/"} {
		t.Run(name, func(t *testing.T) {
			b := newTab(t)
			b.open(prefix + "adr/0021-page.html")
			b.run(chromedp.KeyEvent("/"))
			b.wait(`document.activeElement.id === 'site-query'`)
			empty := chromedp.Evaluate(`document.getElementById('site-query').value = ''`, nil)
			b.run(empty, chromedp.KeyEvent("last good version broken")) // chromedp types the slash, which a keyboard does not
			b.wait(`[...document.querySelectorAll('#site-results a')].some((e) => e.textContent.startsWith('Static pods: Edits'))`)
			b.run(chromedp.KeyEvent(kb.Escape))
			b.wait(`document.getElementById('site-found').hidden`)
			b.run(empty, chromedp.KeyEvent("kubectl without"))
			b.wait(`document.querySelectorAll('#site-results li').length > 0`)
			b.run(chromedp.KeyEvent(kb.ArrowDown))
			b.wait(`document.querySelector('#site-results [aria-selected=true] a')?.textContent.startsWith('kubectl without an API server') ?? false`)
			b.run(chromedp.KeyEvent(kb.Enter))
			b.wait(`document.querySelector('h1')?.textContent === 'kubectl without an API server'`)
			b.wait(`document.querySelector('nav [aria-current=page]')?.textContent === 'kubectl without an API server'`)
			b.screenshot("site-" + name)
			wantOnly(t, b, prefix)
		})
	}
}

// axe-core has no finding, nothing is cut off at 320 pixels, and paper has no navigation.
func TestSite_Accessibility(t *testing.T) {
	dir := newSite(t)
	axe := readAxe(t)
	b := newTab(t)
	for _, page := range []string{"index.html", "alerts.html", "faq.html", "commands.html", "differences.html", "adr/0021-page.html"} {
		for _, scheme := range []string{"light", "dark"} {
			b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
			b.open("file://" + filepath.Join(dir, page))
			b.run(chromedp.Evaluate(axe, nil))
			for _, violation := range violations(b) {
				t.Errorf("%s, %s: %s", page, scheme, violation)
			}
		}
		b.run(emulation.SetDeviceMetricsOverride(320, 640, 1, true))
		if width := value[int](b, `document.documentElement.scrollWidth`); width > 320 {
			t.Errorf("%s is %d pixels wide", page, width)
		}
		b.run(emulation.ClearDeviceMetricsOverride(), emulation.SetEmulatedMedia().WithMedia("print"))
		if shown := value[int](b, `[...document.querySelectorAll('header, nav')].filter((e) => e.offsetHeight > 0).length`); shown != 0 {
			t.Errorf("%s has %d parts on paper that belong to the screen", page, shown)
		}
		b.run(emulation.SetEmulatedMedia().WithMedia(""))
	}
}
