package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below the range that the kernel gives to outgoing connections (32768 and up), because a server that
// is down for a while has to find its port free when it comes back.
const firstPort, lastPort = 20000, 32000

// freePorts finds ports on loopback that nobody listens on. They are all held until the last is found, so that no two are
// the same.
func freePorts(n int) ([]int, error) {
	var ports []int
	for tries := 0; len(ports) < n; tries++ {
		port := firstPort + rand.IntN(lastPort-firstPort)
		listener, err := net.ListenTCP("tcp4", loopback(port))
		if err != nil {
			if tries > 200 {
				return nil, fmt.Errorf("find %d free ports between %d and %d on loopback: %w", n, firstPort, lastPort, err)
			}
			continue
		}
		defer listener.Close()
		ports = append(ports, port)
	}
	return ports, nil
}

func loopback(port int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }
