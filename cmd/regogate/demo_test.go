package main

import (
	"strings"
	"testing"
)

func TestTheDemoWarnsOfOthers(t *testing.T) {
	const rest = " is not on loopback: whoever can reach it and sees what is printed here, a token of an admin above all, may call every tool of the demo\n"
	for listen, want := range map[string]string{
		"127.0.0.1:8080": "", "localhost:0": "", "[::1]:0": "", "nonsense": "",
		":8080":          "warning: --listen :8080" + rest,
		"0.0.0.0:8080":   "warning: --listen 0.0.0.0:8080" + rest,
		"[::]:0":         "warning: --listen [::]:0" + rest,
		"192.0.2.1:8080": "warning: --listen 192.0.2.1:8080" + rest,
	} {
		var got strings.Builder
		warnOfOthers(&got, listen)
		if got.String() != want {
			t.Errorf("%s: %q, want %q", listen, got.String(), want)
		}
	}
}
