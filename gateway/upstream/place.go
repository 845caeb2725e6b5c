package upstream

import (
	"context"
	"errors"
	"sync"
)

// place keeps what is wanted in place over the link of a legacy server, which is
// asked for each resource. The error says why it cannot go on; it is errStale
// where the link is of no use any more.
func (sub *subscriber) place(e *entry) error {
	ctx, cancel := context.WithCancel(sub.life)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	broke := make(chan error, 1)
	for {
		for _, w := range sub.due(e) {
			asking.Go(func() {
				if err := sub.put(ctx, e, w); err != nil {
					select {
					case broke <- err:
					default:
					}
				}
			})
		}
		if sub.isIdle() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.gone:
			return errStale
		case <-e.link.ended():
			return errStale
		case err := <-broke:
			return err
		case <-sub.wake:
		}
	}
}

// due returns what the server of the entry was not asked for yet, and takes
// note that it is.
func (sub *subscriber) due(e *entry) (list []*want) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	for _, w := range sub.wants {
		if w.on != e {
			w.on = e
			list = append(list, w)
		}
	}
	return list
}

// put asks for one resource. The error is one after which everything is to be
// tried again: not that of a want that has failed for good.
func (sub *subscriber) put(ctx context.Context, e *entry, w *want) error {
	ctx, cancel := context.WithTimeout(ctx, sub.server.config.CallTimeout)
	defer cancel()
	err := sub.server.enter(ctx)
	if err != nil {
		return sub.failed(w, err)
	}
	m, err := sub.server.over(ctx, e, request{method: subscribe, params: uriParams(w.uri)})
	sub.server.leave()
	if err != nil {
		return sub.failed(w, err)
	}
	if m.Error != nil && w.isSettled() {
		sub.server.log.Warn("a server no longer tells of a resource", "server", sub.server.name, "code", m.Err().Code)
	}
	sub.settle(w, m, nil)
	if m.Error == nil && !sub.wanted(w.uri, e) { // meanwhile somebody unsubscribed
		_, err = sub.server.over(ctx, e, request{method: unsubscribe, params: uriParams(w.uri)})
	}
	return err
}

// failed settles a new want; one that was in place before is due again.
func (sub *subscriber) failed(w *want, err error) error {
	isNew := !w.isSettled()
	sub.mu.Lock()
	w.on = nil
	sub.mu.Unlock()
	if isNew && !errors.Is(err, errStale) {
		sub.settle(w, nil, err)
		return nil
	}
	return err
}

// wanted reports whether the subscription to a resource over the entry is of
// use, or will be.
func (sub *subscriber) wanted(uri string, e *entry) bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.wants[uri] != nil || sub.isWanted(uri, e)
}
