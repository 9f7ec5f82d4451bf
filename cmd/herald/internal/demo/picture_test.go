package demo_test

import (
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"
)

// secondsPerFrame is how long the picture shows each step.
const secondsPerFrame = 4

// colours are those of the styles in the picture.
var colours = map[string]string{"90": "#8b949e", "1": "#ffffff", "32": "#7ee787", "31": "#ff7b72", "33": "#e3b341", "36": "#79c0ff"}

// picture returns an SVG that shows the screens one after the other. A reader without animations, or who wants none, sees the second.
func picture(screens [][][]cell) string {
	const lineHeight, characterWidth = 18, 7.83
	rows, columns := len(screens[0]), len(screens[0][0])
	width, height := int(float64(columns)*characterWidth)+40, rows*lineHeight+52
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="herald demo in a terminal">`+"\n", width, height)
	share := 100 / float64(len(screens))
	fmt.Fprintf(&svg, "<style>\ntext{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d0d7de;white-space:pre}\n"+
		".s{visibility:hidden;animation:show %ds step-end infinite}\n.s:nth-of-type(3){visibility:visible}\n"+
		"@keyframes show{0%%{visibility:visible}%.2f%%{visibility:hidden}100%%{visibility:hidden}}\n"+
		"@media (prefers-reduced-motion:reduce){.s{animation:none}}\n", secondsPerFrame*len(screens), share)
	for _, style := range slices.Sorted(maps.Keys(colours)) {
		fmt.Fprintf(&svg, ".c%s{fill:%s}", style, colours[style])
	}
	fmt.Fprintf(&svg, "\n</style>\n<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#1b1f24\"/>\n", width, height)
	svg.WriteString(`<g fill="#57606a"><circle cx="20" cy="18" r="6"/><circle cx="40" cy="18" r="6"/><circle cx="60" cy="18" r="6"/></g>` + "\n")
	for i, screen := range screens {
		fmt.Fprintf(&svg, "<g class=\"s\" style=\"animation-delay:-%ds\">\n", (len(screens)-i)*secondsPerFrame)
		for y, row := range screen {
			if text := pictureLine(row); text != "" {
				fmt.Fprintf(&svg, `<text x="20" y="%d">%s</text>`+"\n", 48+y*lineHeight, text)
			}
		}
		svg.WriteString("</g>\n")
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

// pictureLine returns the content of a text element: the characters, those with a style in an element of their own.
func pictureLine(row []cell) string {
	end := len(row)
	for end > 0 && row[end-1].character == ' ' {
		end--
	}
	var text strings.Builder
	for i := 0; i < end; {
		style := row[i].style
		var part strings.Builder
		for ; i < end && row[i].style == style; i++ {
			part.WriteRune(row[i].character)
		}
		if style == "" {
			text.WriteString(html.EscapeString(part.String()))
		} else {
			fmt.Fprintf(&text, `<tspan class="c%s">%s</tspan>`, style, html.EscapeString(part.String()))
		}
	}
	return text.String()
}
