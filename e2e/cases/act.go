package cases

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/metrics"
	"syscall"
	"time"
)

// act changes the world.
func (p *player) act(ctx context.Context, a *Action) error {
	if !knownMode(a.Mode) {
		return fmt.Errorf("unknown mode %q", a.Mode)
	}
	if a.Backend != "" {
		if err := p.actBackend(a); err != nil {
			return err
		}
	}
	if a.Issuer != "" {
		if err := p.actIssuer(a); err != nil {
			return err
		}
	}
	if err := p.distribute(a); err != nil {
		return err
	}
	if a.Reload != "" {
		if err := p.reload(a.Reload, a.Says); err != nil {
			return err
		}
	}
	if a.Storm != nil {
		if err := p.storm(ctx, *a.Storm); err != nil {
			return err
		}
	}
	switch a.Redis {
	case "":
	case "garbage":
		for _, key := range p.redis.Keys() {
			if err := p.redis.Set(key, `{"effect":[`); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("redis: %q is not garbage", a.Redis)
	}
	time.Sleep(a.Pause)
	switch a.Gateway {
	case "":
		return nil
	case "restart":
		return p.restart(ctx, a.Keep)
	case "drain":
		p.gate.cancel()
		return nil
	case "stop":
		return p.gate.stop()
	}
	return fmt.Errorf("gateway: %q is none of drain, stop and restart", a.Gateway)
}

func (p *player) actBackend(a *Action) error {
	if a.Kill {
		b := p.pipes[a.Backend]
		if b == nil {
			return fmt.Errorf("backend %q is not one over stdio", a.Backend)
		}
		pids, err := b.processes()
		if err != nil || len(pids) == 0 {
			return fmt.Errorf("backend %s has no process to kill: %w", a.Backend, err)
		}
		return syscall.Kill(pids[len(pids)-1], syscall.SIGKILL)
	}
	b := p.webs[a.Backend]
	if b == nil {
		return fmt.Errorf("backend %q is not one over http", a.Backend)
	}
	if a.Tools != nil {
		b.offer(a.Tools)
	}
	if a.Whole {
		spec := b.manners()
		spec.Pages = nil
		b.become(spec)
	}
	if a.Forget {
		b.forget()
	}
	if a.Mode != "" {
		if err := b.turn(a.Mode, a.For); err != nil {
			return err
		}
	}
	if a.Notify != "" {
		return b.notify(a.Notify)
	}
	return nil
}

func (p *player) actIssuer(a *Action) error {
	i := p.issuers[a.Issuer]
	if i == nil {
		return fmt.Errorf("no issuer %q", a.Issuer)
	}
	if a.JWKS != nil {
		document, err := p.keySet(a.JWKS)
		if err != nil {
			return err
		}
		i.publish(document)
	}
	if a.Document != "" {
		i.publish(a.Document)
	}
	if a.Mode != "" {
		return i.turn(a.Mode, "")
	}
	return nil
}

// reload saves the policy or the catalogue anew, as another revision: with what it
// says from now on, or else as it is.
func (w *world) reload(what, says string) error {
	var file string
	switch what {
	case "policy":
		file = filepath.Join(w.dir, "policy", "authz.rego")
	case "catalogue":
		file = w.config.Registry.Path
	default:
		return fmt.Errorf("reload: %q is neither policy nor catalogue", what)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saved++
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if says != "" {
		data = []byte(says)
	}
	// As editors do it: whoever reads meanwhile has the one or the other.
	beside := filepath.Join(w.dir, "saved")
	if err := os.WriteFile(beside, fmt.Appendf(data, "# saved %d times\n", w.saved), 0o600); err != nil {
		return err
	}
	return os.Rename(beside, file)
}

// heapWatch measures how far the heap grows.
type heapWatch struct {
	end, ended chan struct{}
	first, top uint64
}

func newHeapWatch(on bool) *heapWatch {
	h := &heapWatch{end: make(chan struct{}), ended: make(chan struct{})}
	if !on {
		close(h.ended)
		return h
	}
	h.first = heapInUse()
	go func() {
		defer close(h.ended)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			h.top = max(h.top, heapInUse())
			select {
			case <-h.end:
				return
			case <-tick.C:
			}
		}
	}()
	return h
}

// stop returns the growth in bytes.
func (h *heapWatch) stop() int64 {
	close(h.end)
	<-h.ended
	return int64(h.top) - int64(h.first)
}

// heap says how much too far the heap has grown.
func (e *Expect) heap(grown int64) string {
	if most := int64(e.Memory); most > 0 && grown > most {
		return fmt.Sprintf("the heap grew by %d bytes, more than %d", grown, most)
	}
	return ""
}

func heapInUse() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
