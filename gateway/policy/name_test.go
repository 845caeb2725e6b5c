package policy

import "testing"

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{{"éé", 4, "éé"}, {"éé", 3, "é…"}, {"éé", 2, "é…"}, {"éé", 1, "…"}, {"", 0, ""}} {
		if got := shorten(c.in, c.max); got != c.want {
			t.Errorf("shorten(%q, %d) is %q, want %q", c.in, c.max, got, c.want)
		}
	}
}
