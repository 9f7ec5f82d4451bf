package browser_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// axe-core finds nothing to complain about, in both views and both colour schemes (WCAG 2.2 AA).
func TestAccessibility(t *testing.T) {
	folder := os.Getenv("HERALD_TEST_BROWSER")
	if folder == "" {
		t.Skip("axe-core is not there: HERALD_TEST_BROWSER=$(hack/install-browser)")
	}
	axe, err := os.ReadFile(filepath.Join(folder, "axe.min.js")) //nolint:gosec // the developer's own
	if err != nil {
		t.Fatal(err)
	}
	_, b, _ := openShop(t, "--act")
	b.wait(status("cart-n1") + ` === 'CrashLoopBackOff'`)
	b.run(chromedp.Evaluate(string(axe), nil))
	for _, scheme := range []string{"light", "dark"} {
		b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
		for _, place := range []string{"#/", "#/pods/shop/cart-n1"} {
			b.run(chromedp.Evaluate(`location.hash = `+"`"+place+"`", nil))
			b.wait(`document.querySelector('.lanes, .pods tbody tr') !== null`)
			var violations []string
			b.run(chromedp.Evaluate(`axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})
				.then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.html + ' ' + n.failureSummary).join('; ')))`, &violations,
				func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
			for _, violation := range violations {
				t.Errorf("%s, %s: %s", scheme, place, violation)
			}
		}
	}
}
