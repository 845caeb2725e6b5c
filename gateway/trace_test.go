package gateway

import (
	"net/http"
	"testing"
)

func TestTraceOf(t *testing.T) {
	const id, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	good := trace{id, span}
	for header, want := range map[string]trace{
		"00-" + id + "-" + span + "-01":                       good,
		"00-" + id + "-" + span + "-00":                       good,
		"cc-" + id + "-" + span + "-01":                       good,
		"cc-" + id + "-" + span + "-01-what the future":       good,
		"cc-" + id + "-" + span + "-01.what":                  {},
		"00-" + id + "-" + span + "-01-more":                  {},
		"ff-" + id + "-" + span + "-01":                       {},
		"0x-" + id + "-" + span + "-01":                       {},
		"00-" + id + "-" + span + "-0g":                       {},
		"00-" + id + "-" + span + "-1":                        {},
		"00_" + id + "-" + span + "-01":                       {},
		"00-0AF7651916CD43DD8448EB211C80319C-" + span:         {},
		"00-0AF7651916CD43DD8448EB211C80319C-" + span + "-01": {},
		"00-00000000000000000000000000000000-" + span + "-01": {},
		"00-" + id + "-0000000000000000-01":                   {},
		"00-" + id[1:] + "\"-" + span + "-01":                 {},
		"":                                                    {},
		" 00-" + id + "-" + span + "-01":                      {},
	} {
		if got := traceOf(http.Header{"Traceparent": {header}}); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
	one := "00-" + id + "-" + span + "-01"
	if got := traceOf(http.Header{"Traceparent": {one, one}}); got != (trace{}) {
		t.Errorf("two headers: %v", got)
	}
	if got := traceOf(http.Header{}); got != (trace{}) {
		t.Errorf("none: %v", got)
	}
}
