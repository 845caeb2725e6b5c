package gateway

// Left is what is held here of a session: its streams (of all sessions), its
// conversation and the servers that it has conversations with.
func (g *Gateway) Left(session string) (streams int, talks bool, servers []string) {
	g.mu.Lock()
	_, talks = g.talks[session]
	g.mu.Unlock()
	return g.hub.Stats().Streams, talks, g.pool.Open("session " + session)
}

// Forget drops the live side of a session, as it is at a replica that has not
// seen it yet.
func (g *Gateway) Forget(session string) { g.endConversation(session) }
