package cases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// storm lets clients come and go, and returns when all have gone.
func (p *player) storm(ctx context.Context, spec Storm) error {
	if spec.AtOnce == 0 {
		spec.AtOnce = 8
	}
	numbers := make(chan int)
	errs := make([]error, spec.Clients)
	var all sync.WaitGroup
	for range spec.AtOnce {
		all.Go(func() {
			for n := range numbers {
				errs[n] = p.comeAndGo(ctx, spec, n)
			}
		})
	}
	for n := range spec.Clients {
		numbers <- n
	}
	close(numbers)
	all.Wait()
	return errors.Join(errs...)
}

// comeAndGo is one client.
func (p *player) comeAndGo(ctx context.Context, spec Storm, n int) error {
	random := rand.New(rand.NewPCG(spec.Seed, uint64(n)))
	moment := func() { time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond) }
	session := fmt.Sprintf("storm-%d", n)
	if random.IntN(16) == 0 {
		if err := p.reload("policy"); err != nil {
			return err
		}
	}
	out, err := p.request(ctx, &Step{Method: "GET", Session: session})
	if err != nil {
		return err
	}
	stream, r := openStream(p.gate.addr, out.head)
	if stream == nil {
		return fmt.Errorf("client %d gets no stream: status %d, %w", n, r.status, r.err)
	}
	defer stream.close()
	if out, err = p.request(ctx, &Step{Call: spec.Call, Session: session}); err != nil {
		return err
	}
	leave := make(chan struct{})
	out.leave = leave
	answered := make(chan *reply, 1)
	go func() { answered <- exchange(ctx, p.gate.addr, out) }()
	moment()
	var ended *reply
	way := random.IntN(3)
	if way != 0 {
		close(leave)
	}
	if way != 1 {
		if out, err = p.request(ctx, &Step{Method: "DELETE", Session: session}); err != nil {
			return err
		}
		ended = exchange(ctx, p.gate.addr, out)
	}
	if way == 1 {
		stream.conn.Close()
	}
	for _, r := range []*reply{<-answered, ended} {
		if r != nil && r.status >= 500 {
			return fmt.Errorf("client %d was answered with status %d: %s", n, r.status, clip(string(r.body)))
		}
	}
	return nil
}
