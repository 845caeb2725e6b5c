package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// door is where a server is reached. It can be shut and opened again.
type door struct {
	*place
	handler http.Handler
	address string
	server  *http.Server
}

func openDoor(p *place, h http.Handler) (*door, error) {
	d := &door{place: p, handler: h, address: "127.0.0.1:0"}
	return d, d.open()
}

func (d *door) open() error {
	var l net.Listener
	var err error
	// Another socket may just have been given the port.
	for range 50 {
		if l, err = net.Listen("tcp", d.address); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("open the door of server %s: %w", d.name, err)
	}
	d.address = l.Addr().String()
	d.server = &http.Server{Handler: d.handler, ReadHeaderTimeout: 10 * time.Second}
	go func(s *http.Server) { _ = s.Serve(l) }(d.server)
	return nil
}

// shut ends the listener and all connections at once.
func (d *door) shut() { _ = d.server.Close() }

// fate has the server restart, be away and lose its sessions now and then.
func (d *door) fate(ctx context.Context, every time.Duration) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(d.dice.between(every/2, every*3/2)):
		}
		if d.calm.Load() {
			continue
		}
		switch d.dice.below(3) {
		case 0:
			d.book.count("server " + d.name + " lost its sessions")
			d.forget()
			continue
		case 1:
			d.book.count("server " + d.name + " restarted")
			d.shut()
			d.forget()
		case 2:
			d.book.count("server " + d.name + " was away")
			d.shut()
			d.forget()
			select {
			case <-ctx.Done():
			case <-time.After(d.dice.between(500*time.Millisecond, 3*time.Second)):
			}
		}
		if err := d.open(); err != nil {
			return err
		}
	}
}
