// Package pages renders the documents of the repository to static pages with navigation and search. They need no network, and work from a
// file and below any path of a server.
package pages
