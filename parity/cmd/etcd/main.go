// Command etcd is the etcd server. It is built from its Go module, so that tests need no download.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
