package depot

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// bundleType is the Content-Type by which a server says that it lets requests
// wait.
const bundleType = "application/vnd.openpolicyagent.bundles"

// send answers with what there is, as its fault has it. turned is closed when
// something else is published.
func (d *Depot) send(w http.ResponseWriter, r *http.Request, what *parcel, turned <-chan struct{}) {
	to, redirects := strings.CutPrefix(what.fault, "redirect ")
	code, bare := strings.CutPrefix(what.fault, "status ")
	switch {
	case redirects:
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	case bare:
		status, err := strconv.Atoi(code)
		if err != nil {
			status = http.StatusTeapot
		}
		http.Error(w, "no bundle today", status)
	case what.fault == Unmodified:
		w.WriteHeader(http.StatusNotModified)
	case what.fault == UnmodifiedBody:
		wire(w, func(c net.Conn) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 304 Not Modified\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", what.body.size())
			_, _ = what.body.WriteTo(c)
		})
	case what.fault == Early && what.known(r.Header.Get("If-None-Match")):
		w.Header().Set("ETag", what.etag)
		w.WriteHeader(http.StatusNotModified)
	case what.fault == Hang:
		wait(r, turned, time.Hour)
		panic(http.ErrAbortHandler)
	case what.fault == Reset:
		wire(w, func(c net.Conn) {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // closing it is a reset then
			}
		})
	default:
		d.sendBody(w, r, what, turned)
	}
}

func (d *Depot) sendBody(w http.ResponseWriter, r *http.Request, what *parcel, turned <-chan struct{}) {
	if etag := d.etag(what); etag != "" {
		w.Header().Set("ETag", etag)
	}
	w.Header().Set("Content-Type", what.contentType(d.Long))
	body, size := io.WriterTo(what.body), what.body.size()
	switch what.fault {
	case Empty:
		w.WriteHeader(http.StatusOK)
		return
	case Cut:
		size /= 2
		body = what.body.first(size)
	}
	promised := size
	if what.fault == Short {
		promised += 1000
	}
	w.Header().Set("Content-Length", strconv.FormatInt(promised, 10))
	if what.fault == Drip {
		drip(w, r, turned)
	}
	// Whoever asked may have gone or had enough; then nobody is left to tell.
	_, _ = body.WriteTo(w)
	if what.fault == Short {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// drip sends a byte now and then, and cuts the connection in the end.
func drip(w http.ResponseWriter, r *http.Request, turned <-chan struct{}) {
	for !wait(r, turned, 100*time.Millisecond) {
		_, _ = w.Write([]byte{0x1f})
		_ = http.NewResponseController(w).Flush()
	}
	panic(http.ErrAbortHandler)
}

// wait reports whether the client left or something else was published within d.
func wait(r *http.Request, turned <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		return true
	case <-turned:
		return true
	case <-timer.C:
		return false
	}
}

// wire lets f write to the connection itself, which is closed then.
func wire(w http.ResponseWriter, f func(net.Conn)) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the connection is gone
	}
	f(c)
	_ = c.Close()
}
