package browser_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// readAxe returns the script of axe-core.
func readAxe(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("HERALD_TEST_BROWSER")
	if folder == "" {
		t.Skip("axe-core is not there: HERALD_TEST_BROWSER=$(hack/install-browser)")
	}
	axe, err := os.ReadFile(filepath.Join(folder, "axe.min.js")) //nolint:gosec // the developer's own
	if err != nil {
		t.Fatal(err)
	}
	return string(axe)
}

// violations returns the findings of axe-core (WCAG 2.2 AA and best practice), which the page must have loaded.
func violations(b *tab) (found []string) {
	b.t.Helper()
	b.run(chromedp.Evaluate(`axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})
		.then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.html + ' ' + n.failureSummary).join('; ')))`, &found,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return found
}

// axe-core finds nothing to complain about, in both views and both colour schemes.
func TestAccessibility(t *testing.T) {
	axe := readAxe(t)
	_, b, _ := openShop(t, "--act")
	b.wait(status("cart-n1") + ` === 'CrashLoopBackOff'`)
	b.run(chromedp.Evaluate(axe, nil))
	for _, scheme := range []string{"light", "dark"} {
		b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
		for _, place := range []string{"#/", "#/pods/shop/cart-n1"} {
			b.run(chromedp.Evaluate(`location.hash = `+"`"+place+"`", nil))
			b.wait(`document.querySelector('.lanes, .pods tbody tr') !== null`)
			for _, violation := range violations(b) {
				t.Errorf("%s, %s: %s", scheme, place, violation)
			}
		}
	}
}
