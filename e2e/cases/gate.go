package cases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/policies"
	"github.com/regogate/regogate/registry/catalogue"
	"github.com/regogate/regogate/registry/strictyaml"
)

// gate is one gateway while it runs.
type gate struct {
	addr   string
	cancel context.CancelFunc
	ended  chan error
	log    *bookkeeper
}

// startGateway runs a gateway of the world's configuration, as the process would
// that has it in a file, and waits for what the world says.
func (w *world) startGateway(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c := w.config
	c.Listen = l.Addr().String()
	c.Defaults()
	c.Policy.FS = policies.FS
	if problems := c.Validate(); len(problems) > 0 {
		return errors.Join(strictyaml.Err(problems), l.Close())
	}
	decisions, err := gateway.OpenDecisions(&c, "cases", io.Discard, w.journal.logger())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	records := &bookkeeper{decisions, w.journal}
	g, err := gateway.New(ctx, c, gateway.Options{
		Version: "cases", Log: w.journal.logger(), Policies: policies.FS, Catalogue: catalogue.FS, Records: records,
	})
	if err != nil {
		records.close()
		return errors.Join(err, l.Close())
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.gate = &gate{addr: c.Listen, cancel: cancel, ended: make(chan error, 1), log: records}
	if w.proxy != nil {
		w.proxy.point(c.Listen)
	}
	go func(ended chan<- error) { ended <- g.Run(running, l) }(w.gate.ended)
	return w.waitStarted(ctx)
}

// stop ends the gateway as SIGTERM does, and returns when nothing of it is left.
func (g *gate) stop() error {
	g.cancel()
	select {
	case err := <-g.ended:
		g.ended <- nil // for whoever stops it again
		g.log.close()
		return err
	case <-time.After(40 * time.Second):
		return errors.New("the gateway did not stop within 40s")
	}
}

func (w *world) waitStarted(ctx context.Context) error {
	path, want := "/readyz", `"status":"ready"`
	switch w.spec.Start {
	case "", "ready":
	case "able":
		want = "" // 200 is enough
	case "live":
		path, want = "/healthz", ""
	default:
		return fmt.Errorf("start: %q is none of ready, able and live", w.spec.Start)
	}
	deadline := time.Now().Add(startTimeout)
	for {
		r := exchange(ctx, w.gate.addr, outgoing{head: "GET " + path + " HTTP/1.1\r\nHost: " + w.gate.addr + "\r\n\r\n"})
		if r.err == nil && r.status == 200 && contains(r.body, want) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s did not say %s within %s: %d %s (%v)", path, want, startTimeout, r.status, r.body, r.err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// restart stops the gateway and starts another one with the same files. Clients
// that do not keep their sessions begin anew.
func (w *world) restart(ctx context.Context, keep bool) error {
	if err := w.gate.stop(); err != nil {
		return err
	}
	if !keep {
		w.mu.Lock()
		clear(w.sessions)
		w.mu.Unlock()
	}
	return w.startGateway(ctx)
}
