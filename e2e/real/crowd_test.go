package real_test

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/regogate/regogate/e2e/clients"
)

// countTogether has many sessions call the same tools at once, all with the
// same progress tokens. Each hears of its own steps and of no other's.
func (s *shares) countTogether(t *testing.T) {
	const sessions, rounds = 6, 2
	sdk := clients.All()[0]
	var runs errgroup.Group
	for i := range sessions {
		persona, era := []string{owner, guest}[i%2], sdk.Eras[i%len(sdk.Eras)]
		steps := i + 2
		spec := clients.Spec{URL: s.URL + "/mcp", Token: s.tokens[persona], Era: era}
		for range rounds {
			for _, server := range []string{notes, papers} {
				spec.Calls = append(spec.Calls, clients.Call{
					Name: server + "__count", Arguments: arguments(object{"steps": steps, "pause": 10}), Progress: true,
				})
			}
		}
		var want []string
		for step := range steps {
			want = append(want, fmt.Sprintf("%d/%d", step+1, steps))
		}
		runs.Go(func() error {
			got, err := sdk.Run(t.Context(), t, spec)
			if err != nil {
				return err
			}
			for _, r := range got.Calls {
				if text := fmt.Sprintf("counted %d", steps); !r.OK || r.Text != text || !slices.Equal(r.Progress, want) {
					return fmt.Errorf("%s of %d steps, %s in the %s era: %+v (%v)", r.Name, steps, persona, era, r, r.Error)
				}
			}
			return nil
		})
	}
	if err := runs.Wait(); err != nil {
		t.Error(err)
	}
}
