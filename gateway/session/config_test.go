package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regogate/regogate/registry/strictyaml"
)

func TestConfigProblems(t *testing.T) {
	const redis = "redis: {addrs: ['a:1']}"
	const form = "f:1: sessions.key: must be base64 or hex of at least 32 bytes: make one with openssl rand -base64 32"
	for _, c := range []struct{ in, want string }{
		{"{}", ""},
		{"{idle: 1m, lifetime: 1h, max: 10, per_principal: 2}", ""},
		{"{" + redis + ", key: '" + strings.Repeat("0f", 32) + "'}", ""},
		{"{" + redis + ", key: '" + testKey + "'}", ""},
		{"{" + redis + ", key: '" + strings.Repeat("A", 43) + "='}", ""},
		{"{" + redis + ", key: '" + strings.Repeat("A", 43) + "'}", ""},
		{"{" + redis + ", key: '" + strings.Repeat("_-", 22) + "'}", ""},
		{"{idle: -1s}", "f:1: sessions.idle: must be more than 0"},
		{"{lifetime: -1s, max: -1, per_principal: -1}", "f:1: sessions.lifetime: must be more than 0\n" +
			"f:1: sessions.max: must be more than 0\nf:1: sessions.per_principal: must be more than 0"},
		{"{key: hunter2}", "f:1: sessions.key: has no effect without redis: remove it, or say where Redis is"},
		{"{redis: {}, key: '" + testKey + "'}", "f:1: sessions.redis.url: is missing; want url or addrs"},
		{"{" + redis + "}", "f:1: sessions.key: is missing: what is in Redis is sealed with a key that all replicas share; make one with openssl rand -base64 32"},
		{"{" + redis + ", key: hunter2}", form},
		{"{" + redis + ", key: '" + strings.Repeat("0f", 31) + "'}", form},
		{"{" + redis + ", key: '" + strings.Repeat("hunter2", 6) + "'}", form},
		{"{" + redis + ", key: '" + strings.Repeat("hunter2 ", 8) + "'}", form},
	} {
		var file struct {
			Sessions Config `yaml:"sessions"`
		}
		pos, problems := strictyaml.Decode([]byte("sessions: "+c.in+"\n"), &file, strictyaml.Options{File: "f"})
		if len(problems) > 0 {
			t.Errorf("%s: %v", c.in, problems)
			continue
		}
		file.Sessions.Defaults()
		problems = file.Sessions.Validate("sessions")
		pos.Locate(problems)
		got := ""
		if err := strictyaml.Err(problems); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", c.in, got, c.want)
		}
		if strings.Contains(fmt.Sprintf("%+v %s", file, got), "hunter2") {
			t.Errorf("%s: the secret is shown", c.in)
		}
	}
}

func TestDefaults(t *testing.T) {
	var c Config
	c.Defaults()
	if want := (Config{Idle: 30 * time.Minute, Lifetime: 24 * time.Hour, Max: 10_000, PerPrincipal: 64}); c != want {
		t.Errorf("defaults %+v, want %+v", c, want)
	}
	if problems := (&Config{}).Validate("sessions"); len(problems) != 4 {
		t.Errorf("nothing is not refused: %v", problems)
	}
}
