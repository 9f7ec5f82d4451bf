package stream

import (
	"errors"
	"net/http"
	"slices"

	"golang.org/x/net/websocket"
)

var errNoTunnelProtocol = errors.New("the web socket does not offer the protocol of the runtime")

// tunnel ends a web socket that carries SPDY and continues with SPDY (STR-10).
func (p *Proxy) tunnel(w http.ResponseWriter, r *http.Request, stream remote) error {
	offered := tunnelProtocols(r.Header)
	remote, err := p.dial(r.Context(), stream.url, http.MethodPost, spdyHeader(offered...))
	if err != nil {
		return err
	}
	defer func() { _ = remote.Close() }()
	chosen := remote.response.Header.Get(headerVersion)
	if !slices.Contains(offered, chosen) {
		return errNoTunnelProtocol
	}
	ctx, client, err := p.hijack(r.Context(), w)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	websocket.Server{
		Handshake: func(config *websocket.Config, _ *http.Request) error {
			config.Protocol = []string{tunnelPrefix + chosen}
			return nil
		},
		Handler: func(socket *websocket.Conn) {
			socket.PayloadType = websocket.BinaryFrame
			(&copier{client: socket, remote: remote, frames: noFrames{}}).run(ctx)
		},
	}.ServeHTTP(hijackedWriter{client}, r)
	return nil
}
