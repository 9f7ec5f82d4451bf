package stream

import (
	"net/http"
	"slices"
	"strings"
)

// Headers and protocols of upgraded connections.
const (
	headerUpgrade   = "Upgrade"
	headerVersion   = "X-Stream-Protocol-Version" // of what a SPDY connection carries
	headerProtocol  = "Sec-Websocket-Protocol"
	protocolSPDY    = "SPDY/3.1"
	tunnelPrefix    = protocolSPDY + "+" // of web sockets whose messages carry a SPDY connection
	bearerPrefix    = "base64url.bearer.authorization.k8s.io."
	webSocketScheme = "websocket"
)

// isUpgrade reports whether the client asks for another protocol on its connection.
func isUpgrade(header http.Header) bool {
	return header.Get(headerUpgrade) != "" && slices.ContainsFunc(header.Values("Connection"), func(value string) bool {
		return strings.Contains(strings.ToLower(value), "upgrade")
	})
}

func isWebSocket(header http.Header) bool {
	return isUpgrade(header) && strings.EqualFold(header.Get(headerUpgrade), webSocketScheme)
}

// isTunnel reports whether the client offers to tunnel SPDY in a web socket.
func isTunnel(header http.Header) bool {
	return isWebSocket(header) && len(tunnelProtocols(header)) > 0
}

// webSocketProtocols returns the subprotocols that a client offers, without tokens.
func webSocketProtocols(header http.Header) []string {
	var protocols []string
	for _, value := range header.Values(headerProtocol) {
		for protocol := range strings.SplitSeq(value, ",") {
			if protocol = strings.TrimSpace(protocol); protocol != "" && !strings.HasPrefix(protocol, bearerPrefix) {
				protocols = append(protocols, protocol)
			}
		}
	}
	return protocols
}

// tunnelProtocols returns the SPDY protocols that a client offers to tunnel.
func tunnelProtocols(header http.Header) []string {
	var protocols []string
	for _, protocol := range webSocketProtocols(header) {
		if tunneled, ok := strings.CutPrefix(protocol, tunnelPrefix); ok {
			protocols = append(protocols, tunneled)
		}
	}
	return protocols
}

// upgradeHeader returns what the runtime needs of a client's header: nothing that identifies the client.
func upgradeHeader(client http.Header) http.Header {
	header := http.Header{}
	for _, name := range []string{"Connection", headerUpgrade, headerVersion, "Sec-Websocket-Key", "Sec-Websocket-Version", "Origin"} {
		if values := client.Values(name); len(values) > 0 {
			header[name] = values
		}
	}
	if protocols := webSocketProtocols(client); len(protocols) > 0 {
		header.Set(headerProtocol, strings.Join(protocols, ", "))
	}
	return header
}

// spdyHeader returns the header of a SPDY upgrade.
func spdyHeader(versions ...string) http.Header {
	return http.Header{"Connection": {"Upgrade"}, headerUpgrade: {protocolSPDY}, headerVersion: versions}
}
