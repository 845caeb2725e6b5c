// Package reload_test changes the policy under a gateway that is in use: bundles
// come and go, broken in every way, while clients of both eras list and call.
// Each answer has to be the answer of one revision that was in force during the
// request, never half of one and half of another.
package reload_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
