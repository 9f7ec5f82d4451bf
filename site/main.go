// Command site renders README.md and docs to static pages.
//
//	go run . -root .. -out ../.build/site
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/heraldnode/herald/site/pages"
)

func main() {
	root := flag.String("root", "..", "folder of README.md and docs")
	out := flag.String("out", "../.build/site", "folder of the pages; it is replaced")
	flag.Parse()
	if err := generate(*root, *out); err != nil {
		fmt.Fprintf(os.Stderr, "site: %v\n", err)
		os.Exit(1)
	}
	fmt.Println(*out + "/index.html")
}

func generate(root, out string) error {
	site, err := pages.Read(root)
	if err != nil {
		return err
	}
	outputs, err := site.Render()
	if err != nil {
		return err
	}
	return pages.Write(out, outputs)
}
