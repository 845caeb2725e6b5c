package review

import (
	"bufio"
	"context"
	"io"
	"testing"
)

// TestAskInterrupted interrupts who is asked and does not answer.
func TestAskInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, hold := io.Pipe()
	defer hold.Close()
	cancel()
	a := &Approval{Out: io.Discard}
	yes, err := a.ask(ctx, bufio.NewReader(in), &Difference{Server: "s", Tool: "x"})
	if want := "s/x: left as it is, for the answer was interrupted"; yes || err == nil || err.Error() != want {
		t.Errorf("got %v, %v; want %q", yes, err, want)
	}
}
