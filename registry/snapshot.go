package registry

import "time"

// Snapshot is an immutable view of a catalogue at one revision. Nobody
// modifies what its methods return; all of them may run concurrently.
type Snapshot struct {
	head       Head
	fetched    time.Time
	tools      []Tool
	suggested  []Tool
	quarantine []Quarantined
	byName     map[toolKey]*Tool
	servers    map[string]*Server
	blocked    map[toolKey]*Quarantined
}

type toolKey struct{ server, name string }

// NewSnapshot makes the snapshot of a catalogue that was fetched at the given
// time. It shares what the catalogue holds.
func NewSnapshot(c *Catalogue, fetched time.Time) *Snapshot {
	s := &Snapshot{
		head: c.Head, fetched: fetched, quarantine: c.Quarantine,
		byName: make(map[toolKey]*Tool, len(c.Tools)), servers: make(map[string]*Server, len(c.Servers)),
		blocked: make(map[toolKey]*Quarantined, len(c.Quarantine)),
	}
	for i := range c.Quarantine {
		q := &c.Quarantine[i]
		s.blocked[toolKey{q.Server, q.Tool}] = q
	}
	for i := range c.Servers {
		s.servers[c.Servers[i].Name] = &c.Servers[i]
	}
	for _, t := range c.Tools {
		if t.Suggested {
			s.suggested = append(s.suggested, t)
			continue
		}
		s.tools = append(s.tools, t)
	}
	for i := range s.tools {
		t := &s.tools[i]
		s.byName[toolKey{t.Server, t.Name}] = t
	}
	return s
}

// Lookup returns the registered tool of that server and name, compared byte by
// byte. A suggested tool is not registered.
func (s *Snapshot) Lookup(server, tool string) (*Tool, bool) {
	t, ok := s.byName[toolKey{server, tool}]
	return t, ok
}

// Server returns the entry of the server of that name, compared byte by byte.
// It may be one without any facet. Its being there says nothing of its tools.
func (s *Snapshot) Server(name string) (*Server, bool) {
	server, ok := s.servers[name]
	return server, ok
}

// Quarantined returns the quarantine that the tool is in: its server's, or else
// its own. An empty tool asks about the server alone. What is in quarantine counts
// as not registered, although Lookup and Server still find it.
func (s *Snapshot) Quarantined(server, tool string) (*Quarantined, bool) {
	if q, ok := s.blocked[toolKey{server, ""}]; ok {
		return q, true
	}
	q, ok := s.blocked[toolKey{server, tool}]
	return q, ok
}

// Tools returns the registered tools, sorted by server, then name.
func (s *Snapshot) Tools() []Tool { return s.tools }

// Suggested returns the tools whose attributes nobody has confirmed, in the
// same order. No decision may rest on them.
func (s *Snapshot) Suggested() []Tool { return s.suggested }

// Quarantine returns what is in quarantine, sorted likewise.
func (s *Snapshot) Quarantine() []Quarantined { return s.quarantine }

// Revision names the state of the registry for people and records.
func (s *Snapshot) Revision() string { return s.head.Revision }

// Digest returns the SHA-256 of the catalogue's canonical encoding.
func (s *Snapshot) Digest() string { return s.head.Digest }

// Fetched returns when the catalogue was loaded. How long ago the source last
// confirmed it is the Keeper's to know.
func (s *Snapshot) Fetched() time.Time { return s.fetched }
