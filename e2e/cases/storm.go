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
	session := fmt.Sprintf("%d of storm %d of %s", n, spec.Seed, spec.Call)
	if random.IntN(16) == 0 {
		if err := p.reload("policy", ""); err != nil {
			return err
		}
	}
	var out [3]outgoing
	for i, s := range []Step{{Method: "GET", Session: session}, {Call: spec.Call, Session: session}, {Method: "DELETE", Session: session}} {
		var err error
		if out[i], err = p.request(ctx, &s); err != nil {
			return err
		}
	}
	listens, calls, ends := out[0], out[1], out[2]
	stream, r := openStream(p.gate.addr, listens.head)
	if stream == nil {
		return fmt.Errorf("client %d gets no stream: status %d, %w", n, r.status, r.err)
	}
	defer stream.close()
	leave := make(chan struct{})
	calls.leave = leave
	replies := make(chan *reply, 2)
	go func() { replies <- exchange(ctx, p.gate.addr, calls) }()
	time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
	way := random.IntN(3)
	if way != 0 { // drops its connections
		close(leave)
		stream.conn.Close()
	}
	if way != 1 { // says goodbye
		replies <- exchange(ctx, p.gate.addr, ends)
	} else {
		replies <- &reply{}
	}
	for range 2 {
		if r := <-replies; r.status >= 500 {
			return fmt.Errorf("client %d was answered with status %d: %s", n, r.status, clip(string(r.body)))
		}
	}
	return nil
}
