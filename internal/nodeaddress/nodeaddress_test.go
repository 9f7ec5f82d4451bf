package nodeaddress_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/heraldnode/herald/internal/nodeaddress"
)

func TestCheck(t *testing.T) {
	node := []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}
	for address, allowed := range map[string]bool{
		"127.0.0.1": false, "127.8.8.8": false, "::1": false, "0.0.0.0": false, "::": false, "::ffff:127.0.0.1": false,
		"169.254.169.254": false, "fe80::1%eth0": false, "64:ff9b::a9fe:a9fe": false,
		"192.0.2.7": false, "::ffff:192.0.2.7": false, "2001:db8::7": false, "64:ff9b::c000:207": false,
		"100.100.100.200": false, "192.0.0.192": false, "168.63.129.16": false, "fd00:ec2::254": false, "64:ff9b::6464:64c8": false,
		"192.0.2.8": true, "2001:db8::8": true, "10.0.0.1": true, "fd00::8": true, "64:ff9b::c000:208": true,
	} {
		err := nodeaddress.Check(netip.MustParseAddr(address), node)
		var rejected *nodeaddress.Error
		if errors.As(err, &rejected) == allowed {
			t.Errorf("%s: got error %v, want allowed %v", address, err, allowed)
		}
	}
}

// TestControl_InterfaceAddresses rejects every address of this machine.
func TestControl_InterfaceAddresses(t *testing.T) {
	interfaceAddrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, interfaceAddr := range interfaceAddrs {
		address := net.JoinHostPort(interfaceAddr.(*net.IPNet).IP.String(), "80")
		var rejected *nodeaddress.Error
		if err := nodeaddress.Control("tcp", address, nil); !errors.As(err, &rejected) {
			t.Errorf("%s: got error %v, want a rejection", address, err)
		}
	}
	if err := nodeaddress.Control("tcp", "198.51.100.7:80", nil); err != nil {
		t.Errorf("other machine: got %v", err)
	}
}
