package decisionlog

import "testing"

func BenchmarkRecordLine(b *testing.B) {
	r := whole()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.appendLine(nil); err != nil {
			b.Fatal(err)
		}
	}
}
