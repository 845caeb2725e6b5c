package upstream

import (
	"strings"
	"testing"
	testingquick "testing/quick"
	"time"

	"github.com/yosida95/uritemplate/v3"
)

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		template string
		yes, no  []string
	}{
		{"test://static", []string{"test://static"}, []string{"test://static/", "test://stati", "TEST://static", "", "test://static\n"}},
		{"test://t/{id}/data", []string{"test://t/7/data", "test://t//data", "test://t/a%2Fb,c/data"},
			[]string{"test://t/a/b/data", "test://t/7/data/", "test://t/7/datA", "xtest://t/7/data", "test://t/a?b/data", "test://t/a%2/data"}},
		{"file:///{+path}", []string{"file:///a/b?c#d", "file:///"}, []string{"file://a", "file:///a b", "file:///a\nb", "http:///a"}},
		{"w:/x{?q,r}", []string{"w:/x", "w:/x?q=1", "w:/x?q=1&r=2"}, []string{"w:/x?q=1&r=2&s=3", "w:/xq", "w:/x?q=1#f"}},
		{"w:/x{/a*}", []string{"w:/x", "w:/x/1", "w:/x/1/2/3"}, []string{"w:/x1", "w:/x/1?2"}},
		{"w:/x{;a}{#f}", []string{"w:/x;a=1#y", "w:/x#y"}, []string{"w:/x;a=1/2"}},
		{"w:/a.b({x})", []string{"w:/a.b(1)"}, []string{"w:/aXb(1)", "w:/a.b1"}},
		{"w:/\u00e9/{x}", []string{"w:/\u00e9/1"}, []string{"w:/e\u0301/1"}},
		{"w:{x:3}", []string{"w:abc"}, []string{"w:a/b"}},
	} {
		pattern, err := compile(tt.template)
		if err != nil {
			t.Errorf("%s: it %v", tt.template, err)
			continue
		}
		d := Definition{Name: tt.template, pattern: pattern}
		for _, uri := range tt.yes {
			if !d.Match(uri) {
				t.Errorf("%s does not match %q", tt.template, uri)
			}
		}
		for _, uri := range tt.no {
			if d.Match(uri) {
				t.Errorf("%s matches %q", tt.template, uri)
			}
		}
	}
	long, _ := compile("x:{+a}")
	d := Definition{pattern: long}
	if uri := "x:" + strings.Repeat("a", 2046); !d.Match(uri) || d.Match(uri+"a") {
		t.Error("a URI of 2048 bytes does not match, or one of 2049 does")
	}
}

// TestMatchExpansions: whatever comes of a template matches it.
func TestMatchExpansions(t *testing.T) {
	for _, template := range []string{"x:{a}", "x:{a,b}/z", "x:{+a}/{b}", "x:{#a}", "x:{.a}{/b}", "x:{;a,b}", "x:{?a,b}", "x:y?{&a,b}", "x:{a:3}", "x:{?a*}"} {
		parsed := uritemplate.MustNew(template)
		pattern, err := compile(template)
		if err != nil {
			t.Fatalf("%s: it %v", template, err)
		}
		d := Definition{pattern: pattern}
		check := func(a, b string) bool {
			uri, err := parsed.Expand(uritemplate.Values{"a": uritemplate.String(a), "b": uritemplate.String(b)})
			return err != nil || len(uri) > longestURI || d.Match(uri)
		}
		if err := testingquick.Check(check, nil); err != nil {
			t.Errorf("%s: %v", template, err)
		}
	}
}

// TestMatchIsBounded: the dearest template there can be, and the dearest URI
// for it.
func TestMatchIsBounded(t *testing.T) {
	pattern, err := compile(strings.Repeat("{+a}", 16))
	if err != nil {
		t.Fatal(err)
	}
	d := Definition{pattern: pattern}
	began := time.Now()
	if d.Match(strings.Repeat("a", 2047) + " ") {
		t.Error("it matches")
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	for _, bad := range []string{strings.Repeat("{+a}", 17), "{" + strings.Repeat("a,", 1000) + "a}", strings.Repeat("a", 2049)} {
		if _, err := compile(bad); err == nil {
			t.Errorf("%.20s… is accepted", bad)
		}
	}
}
