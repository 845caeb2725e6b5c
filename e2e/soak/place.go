package main

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// poison is in whatever no client may ever see.
const poison = "poison"

// tool is the only one that there is, at each of the servers.
const tool = "work"

// place is one server, whatever carries its messages. What it does wrong it
// does on purpose, by its dice.
type place struct {
	name string
	dice *dice
	book *book
	calm atomic.Bool // nothing goes wrong from now on

	mu       sync.Mutex
	visitors map[string]*visitor
}

func newPlace(name string, seed uint64, b *book) *place {
	return &place{name: name, dice: newDice(seed, "server "+name), book: b, visitors: map[string]*visitor{}}
}

// visitor is a session of the gateway's with a server, or a process, or a
// listening request.
type visitor struct {
	out     chan []byte   // messages that belong to no call
	gone    chan struct{} // closed when it ends
	end     func()        // may be called more than once
	elicits atomic.Bool   // the client can be asked

	mu      sync.Mutex
	owner   string // of the first mark that it brought
	asks    int
	waiting map[string]chan message
	watched map[string]bool // URIs
	calls   map[string]context.CancelFunc
}

func newVisitor() *visitor {
	v := &visitor{out: make(chan []byte, 64), gone: make(chan struct{}), waiting: map[string]chan message{}, watched: map[string]bool{}}
	v.end = sync.OnceFunc(func() { close(v.gone) })
	return v
}

func (p *place) add(id string, v *visitor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.visitors[id] = v
}

func (p *place) find(id string) *visitor {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.visitors[id]
}

func (p *place) drop(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.visitors[id]; v != nil {
		v.end()
		delete(p.visitors, id)
	}
}

// forget is what a restart does to sessions.
func (p *place) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.visitors {
		v.end()
	}
	p.visitors = map[string]*visitor{}
}

func (p *place) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.visitors)
}

// owned notes whose the visitor is.
func (v *visitor) owned(mark string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.owner == "" {
		v.owner = owner(mark)
	}
	return v.owner
}

// owner is the session of a mark: principal.session.number.
func owner(mark string) string {
	i := strings.LastIndexByte(mark, '.')
	return mark[:max(i, 0)]
}

// answered hands a response of the client to who waits for it.
func (v *visitor) answered(m message) {
	var id string
	_ = json.Unmarshal(m.ID, &id)
	v.mu.Lock()
	defer v.mu.Unlock()
	if c := v.waiting[id]; c != nil {
		c <- m // has room for one, and is taken out at once
		delete(v.waiting, id)
	}
}

// ask sends a request and waits for the answer.
func (v *visitor) ask(ctx context.Context, method string, params any, send func([]byte) error) (message, bool) {
	v.mu.Lock()
	v.asks++
	id := "ask " + encodeInt(v.asks)
	c := make(chan message, 1)
	v.waiting[id] = c
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		delete(v.waiting, id)
		v.mu.Unlock()
	}()
	if send(encode(request(id, method, params))) != nil {
		return message{}, false
	}
	select {
	case m := <-c:
		return m, true
	case <-ctx.Done():
	case <-v.gone:
	case <-time.After(askWait):
	}
	return message{}, false
}

// askWait is how long a server waits for what it asked for.
const askWait = 8 * time.Second

func encodeInt(n int) string { return string(encode(n)) }

// say puts a message on the visitor's own stream, if there is room.
func (v *visitor) say(m []byte) {
	select {
	case v.out <- m:
	default:
	}
}

// gossip tells visitors of the resources that they watch, until the context
// ends.
func (p *place) gossip(ctx context.Context) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		p.mu.Lock()
		all := make([]*visitor, 0, len(p.visitors))
		for _, v := range p.visitors {
			all = append(all, v)
		}
		p.mu.Unlock()
		for _, v := range all {
			v.gossip()
		}
	}
}

func (v *visitor) gossip() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for uri := range v.watched {
		v.say(notification("notifications/resources/updated", object{"uri": uri}))
	}
	if v.owner != "" {
		v.say(notification("notifications/message", object{"level": "error", "logger": "owner", "data": v.owner}))
		v.say(notification("notifications/progress", object{"progressToken": poison, "progress": 1, "message": poison}))
	}
}
