package compose_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/regogate/regogate/e2e/replica"
)

// crash kills the process of a service; the engine has to start it again by
// itself.
func (d *deployment) crash(t *testing.T, service string) {
	c := d.container(t, service)
	before := d.inspect(t, "{{.State.StartedAt}}", c)
	pid, err := strconv.Atoi(d.inspect(t, "{{.State.Pid}}", c))
	if err != nil || pid < 2 {
		t.Fatalf("%s has the process %d: %v", service, pid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	replica.Within(t, liveness, service+" runs again", func() bool {
		return d.inspect(t, "{{.State.Running}} {{.State.StartedAt}}", c) != "true "+before && d.inspect(t, "{{.State.Running}}", c) == "true"
	})
	d.healthy(t, service)
}

// healthy waits until the engine says so of a service.
func (d *deployment) healthy(t testing.TB, service string) {
	t.Helper()
	c := d.container(t, service)
	replica.Within(t, liveness, service+" is healthy", func() bool { return d.inspect(t, "{{.State.Health.Status}}", c) == "healthy" })
}

// roll restarts the gateways as an operator does, one when the other is in use
// again.
func (d *deployment) roll(t *testing.T) {
	for _, g := range d.gateways() {
		d.run(t, "docker compose restart "+g)
		d.healthy(t, g)
		d.used(t, g)
	}
}

// used waits until the balancer has a gateway in use: it has been asked for a
// tool since it started.
func (d *deployment) used(t testing.TB, gateway string) {
	t.Helper()
	c := d.container(t, gateway)
	started := d.inspect(t, "{{.State.StartedAt}}", c)
	replica.Within(t, liveness, gateway+" is in use", func() bool {
		out, err := d.shell(d.docker + " logs --since " + started + " " + c + " 2>&1")
		return err == nil && strings.Contains(out, `"msg":"request"`) && strings.Contains(out, "create_refund")
	})
}

// away kills a service, sees that callers are answered without it, and starts
// it again.
func (d *deployment) away(t *testing.T, x *traffic, service string) {
	d.run(t, "docker compose kill "+service)
	d.ready(t, "degraded", d.gateways()...)
	x.more(t, 10*workers)
	d.run(t, "docker compose start "+service)
	d.healthy(t, service)
	d.ready(t, "ready", d.gateways()...)
}

// startAlone starts a gateway that has nothing but the bundle that it kept.
func (d *deployment) startAlone(t *testing.T) {
	before := d.status("gateway-1").Policy.Revision
	d.run(t, "docker compose stop bundles && docker compose restart gateway-1")
	d.healthy(t, "gateway-1")
	if got := d.status("gateway-1").Policy.Revision; before == "" || got != before {
		t.Errorf("it started with the revision %q, had %q", got, before)
	}
	d.used(t, "gateway-1")
	d.run(t, "docker compose start bundles")
	d.healthy(t, "bundles")
	d.ready(t, "ready", d.gateways()...)
}

// policy changes the policy as README.md says, and waits until both gateways have
// it.
func (d *deployment) policy(t *testing.T, x *traffic) {
	before := d.status("gateway-1").Policy.Revision
	x.change()
	d.readme(t, "policy")
	took := replica.Within(t, liveness, "both gateways have a new revision", func() bool {
		one, two := d.status("gateway-1").Policy.Revision, d.status("gateway-2").Policy.Revision
		return one == two && one != before && one != ""
	})
	x.changed()
	t.Logf("both gateways had the new revision %v after the commands had ended", took)
}
