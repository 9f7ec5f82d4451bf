// Package browser tests the page of a node in a real Chromium, on real agents. It is a module of its own, so that the main module does
// not require what drives a browser.
package browser
