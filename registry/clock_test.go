package registry

import (
	"testing"
	"time"
)

// TestClockJumps is what B099 says of clocks: how old a confirmation is does not
// depend on what the wall clock was set to since. A jump ahead that a process does
// see, after it was suspended, denies until the source is asked again.
func TestClockJumps(t *testing.T) {
	source := scriptedOf(t, validTool("a", "t"))
	k := NewKeeper(source, Config{}, quiet())
	if err := k.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if confirmed := k.state.Load().confirmed; confirmed == confirmed.Round(0) {
		t.Errorf("%v has no monotonic reading, so a clock that is set back makes it younger", confirmed)
	}
	ahead := func() time.Time { return time.Now().Add(time.Hour) }
	if k.Fresh(ahead()) {
		t.Error("fresh after an hour in which nobody was asked")
	}
	k.now = ahead
	if err := k.Refresh(t.Context()); err != nil || !k.Fresh(ahead()) {
		t.Errorf("not fresh although the source was asked: %v", err)
	}
}
