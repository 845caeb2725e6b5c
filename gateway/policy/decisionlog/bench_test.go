package decisionlog

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/regogate/regogate/gateway/policy"
)

// BenchmarkRecord is what a request pays: handing over, and the work that the
// other processor has with it meanwhile.
func BenchmarkRecord(b *testing.B) {
	r := call(b, snapshot(b, ""), `{"amount":1}`)
	l := New(Options{Log: discard()})
	l.Attach("none", io.Discard)
	b.ReportAllocs()
	for b.Loop() {
		l.Record(r)
	}
	b.StopTimer()
	_ = l.Close(context.Background())
}

// BenchmarkLine is what the background does for one event.
func BenchmarkLine(b *testing.B) {
	for name, masks := range map[string]string{
		"plain":  "",
		"masked": "package system.log\n\nmask contains \"/input/claims/email\"\n",
	} {
		b.Run(name, func(b *testing.B) {
			e := newEncoder(nil, newMasking(policy.MaskPaths{}, nil))
			r := call(b, snapshot(b, masks), `{"amount":1}`)
			r.Stages = []Stage{{"auth", 3}, {"registry", 3}, {"policy", 4}, {"upstream", 3}, {"total", 3}}
			b.ReportAllocs()
			for b.Loop() {
				e.line(context.Background(), r)
			}
		})
	}
	b.Run("list", func(b *testing.B) {
		e := newEncoder(nil, newMasking(policy.MaskPaths{}, nil))
		s := snapshot(b, "")
		var all []*policy.Item
		for i := range 507 {
			all = append(all, toolItem(b, fmt.Sprint("server", i%20), fmt.Sprint("a_tool_of_some_name_", i)))
		}
		r := call(b, s, "")
		r.Item, r.List = nil, &List{Items: policy.NewItems(all)}
		r.List.Answers = s.AllowEach(context.Background(), r.Subject, r.List.Items, r.Method, r.Request)
		b.ReportAllocs()
		for b.Loop() {
			e.line(context.Background(), r)
		}
	})
}
