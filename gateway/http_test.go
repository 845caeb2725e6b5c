package gateway

import (
	"net/http"
	"slices"
	"testing"
)

func TestAccepts(t *testing.T) {
	for _, c := range []struct {
		values    []string
		json, sse bool
	}{
		{[]string{"application/json, text/event-stream"}, true, true},
		{[]string{"*/*"}, true, true},
		{[]string{"application/*, text/*"}, true, true},
		{[]string{"text/event-stream;q=0.9, application/json;q=1"}, true, true},
		{[]string{"application/json", "text/event-stream"}, true, true},
		{[]string{"APPLICATION/JSON, TEXT/EVENT-STREAM"}, true, true},
		{[]string{"application/json"}, true, false},
		{[]string{"text/event-stream"}, false, true},
		{[]string{"application/json;q=0, text/event-stream"}, false, true},
		{nil, true, false},
		{[]string{"text/html"}, false, false},
		{[]string{""}, false, false},
	} {
		json, sse := accepts(http.Header{"Accept": c.values})
		if json != c.json || sse != c.sse {
			t.Errorf("accepts(%q) = %v, %v", c.values, json, sse)
		}
	}
}

func TestJSONBody(t *testing.T) {
	for _, c := range []struct {
		types    []string
		encoding string
		want     bool
	}{
		{[]string{"application/json"}, "", true},
		{[]string{"application/json; charset=utf-8"}, "identity", true},
		{[]string{"Application/JSON; charset=UTF-8"}, "", true},
		{[]string{"application/json; charset=latin1"}, "", false},
		{[]string{"application/json"}, "gzip", false},
		{[]string{"text/plain"}, "", false},
		{[]string{"application/x-www-form-urlencoded"}, "", false},
		{[]string{"application/json", "text/plain"}, "", false},
		{nil, "", false},
	} {
		h := http.Header{"Content-Type": c.types}
		if c.encoding != "" {
			h.Set("Content-Encoding", c.encoding)
		}
		if got := jsonBody(h); got != c.want {
			t.Errorf("jsonBody(%q, %q) = %v", c.types, c.encoding, got)
		}
	}
}

func TestLoopbackNames(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.8.8.8": true, "::1": true, "::ffff:127.0.0.1": true,
		"localhost.evil.example": false, "10.0.0.1": false, "": false, "0.0.0.0": false,
	} {
		if got := isLoopback(host); got != want {
			t.Errorf("isLoopback(%q) = %v", host, got)
		}
	}
	for hostport, want := range map[string]string{
		"localhost:8080": "localhost", "[::1]:80": "::1", "[::1]": "::1", "a.example": "a.example", "127.0.0.1:1": "127.0.0.1",
	} {
		if got := hostname(hostport); got != want {
			t.Errorf("hostname(%q) = %q", hostport, got)
		}
	}
}

func TestSlotsBoundOnePrincipalAlone(t *testing.T) {
	s := slots{max: 2}
	got := []bool{s.take("a"), s.take("a"), s.take("a"), s.take("b")}
	if want := []bool{true, true, false, true}; !slices.Equal(got, want) {
		t.Fatalf("take = %v, want %v", got, want)
	}
	s.give("a")
	if !s.take("a") {
		t.Error("a place that was given back cannot be taken")
	}
	s.give("a")
	s.give("a")
	s.give("b")
	if len(s.of) != 0 {
		t.Errorf("%d principals are remembered after their last request", len(s.of))
	}
}
