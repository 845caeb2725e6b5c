package compose_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/replica"
	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/auth/mint"
)

// liveness bounds what has to come in the end. It finds what hangs, not what is
// slow.
const liveness = 2 * time.Minute

// mostBytes is the largest that the image may be.
const mostBytes = 60_000_000

// deployment is docker-compose.yml, up, in a copy of the checkout.
type deployment struct {
	dir     string // of the copy
	url     string // of the balancer
	docker  string // client of the engine
	compose string // what stands for "docker compose", of one or two words
}

// TestDeployment does what README.md says of containers, and then breaks one
// part after the other while agents call.
func TestDeployment(t *testing.T) {
	d := &deployment{dir: os.Getenv("REGOGATE_COMPOSE_DIR"), docker: os.Getenv("DOCKER"), compose: os.Getenv("COMPOSE")}
	if d.dir == "" {
		t.Skip("needs an engine, images and a copy of the checkout: make test-compose brings them")
	}
	d.url = "http://127.0.0.1:" + os.Getenv("REGOGATE_PORT")
	d.readme(t, "up")
	d.ready(t, "ready", d.gateways()...)
	t.Run("shape", d.shape)
	t.Run("try", d.try)
	if t.Failed() {
		t.FailNow()
	}
	x := d.traffic(t)
	for _, phase := range []struct {
		name string
		// lost is how many requests may end without an answer of the gateway: those
		// that a gateway which is killed has taken.
		lost int
		run  func(t *testing.T)
	}{
		{"calm", 0, func(t *testing.T) {}},
		{"a gateway crashes", workers, func(t *testing.T) { d.crash(t, "gateway-1") }},
		{"both gateways are restarted, one after the other", 0, d.roll},
		{"redis is away", 0, func(t *testing.T) { d.away(t, x, "redis") }},
		{"postgres is away", 0, func(t *testing.T) { d.away(t, x, "postgres") }},
		{"the bundle server is away", 0, func(t *testing.T) { d.away(t, x, "bundles") }},
		{"a gateway starts without the bundle server", 0, d.startAlone},
		{"the policy changes", 0, func(t *testing.T) { d.policy(t, x) }},
	} {
		t.Run(phase.name, func(t *testing.T) {
			x.begin()
			x.more(t, workers)
			phase.run(t)
			x.more(t, 2*workers)
			x.judge(t, phase.lost)
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	x.halt()
	x.audit(t)
	t.Run("try again", d.try)
}

func (d *deployment) gateways() []string { return []string{"gateway-1", "gateway-2"} }

// run runs a command line of a shell in the copy, where "docker compose" is what
// it is here, and returns what it wrote to standard output.
func (d *deployment) run(t testing.TB, line string) string {
	t.Helper()
	out, err := d.shell(line)
	if err != nil {
		t.Fatalf("%s\n%v", line, err)
	}
	return out
}

func (d *deployment) shell(line string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", strings.ReplaceAll(line, "docker compose", d.compose))
	cmd.Dir = d.dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w\n%s%s", err, out, stderr.String())
	}
	return string(out), err
}

// readme runs the block of README.md after the comment <!-- compose NAME -->.
func (d *deployment) readme(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(d.dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`(?s)<!-- compose ` + name + " -->\n```sh\n(.*?)```\n").FindSubmatch(text)
	if block == nil {
		t.Fatalf("README.md has no block <!-- compose %s -->", name)
	}
	return d.run(t, string(block[1]))
}

// status is what a gateway tells its operators.
type status struct {
	Status string
	Parts  map[string]string
	Policy struct{ Revision string }
}

func (d *deployment) status(gateway string) (s status) {
	out, err := d.shell("docker compose exec -T " + gateway + " regogate health --url http://127.0.0.1:9464/status")
	if err == nil {
		_ = json.Unmarshal([]byte(out), &s) // "" is waited out
	}
	return s
}

// ready waits until gateways say so of themselves.
func (d *deployment) ready(t testing.TB, want string, gateways ...string) {
	t.Helper()
	for _, g := range gateways {
		replica.Within(t, liveness, g+" is "+want, func() bool { return d.status(g).Status == want })
	}
}

// container is the id of a service's container.
func (d *deployment) container(t testing.TB, service string) string {
	t.Helper()
	return strings.TrimSpace(d.run(t, "docker compose ps -q "+service))
}

func (d *deployment) inspect(t testing.TB, format, of string) string {
	t.Helper()
	return strings.TrimSpace(d.run(t, d.docker+" inspect --format '"+format+"' "+of))
}

// client is an agent of a persona's before the balancer.
func (d *deployment) client(t testing.TB, persona string) *world.Client {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(d.dir, "e2e/compose/secrets/issuer-key"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := mint.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := world.Claims(persona)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	claims["iss"], claims["aud"], claims["iat"], claims["exp"] = world.Issuer, world.Audience, now.Unix(), now.Add(time.Hour).Unix()
	token, err := signer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	return &world.Client{URL: d.url + "/mcp", Token: token, HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}}
}

// shape holds the containers against what is promised of them.
func (d *deployment) shape(t *testing.T) {
	var size int
	image := d.inspect(t, "{{.Image}}", d.container(t, "gateway-1"))
	if _, err := fmt.Sscan(d.inspect(t, "{{.Size}}", image), &size); err != nil || size >= mostBytes {
		t.Errorf("the image has %d bytes, want less than %d: %v", size, mostBytes, err)
	}
	t.Logf("the image has %.1f MB", float64(size)/1e6)
	if user := d.inspect(t, "{{.Config.User}}", image); user != "65532:65532" {
		t.Errorf("the image runs as %q", user)
	}
	for _, service := range []string{"balancer", "gateway-1", "gateway-2", "bundles", "postgres", "redis", "issuer", "stripe", "github"} {
		c := d.container(t, service)
		if got := d.inspect(t, "{{.State.Health.Status}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.HostConfig.RestartPolicy.Name}}", c); got != "healthy true [ALL] unless-stopped" {
			t.Errorf("%s: %s", service, got)
		}
		if limit := d.inspect(t, "{{.HostConfig.Memory}} {{.HostConfig.PidsLimit}}", c); strings.HasPrefix(limit, "0 ") || strings.HasSuffix(limit, " 0") {
			t.Errorf("%s has no limits: %s", service, limit)
		}
		ports, want := d.inspect(t, "{{range .HostConfig.PortBindings}}{{range .}}{{.HostIp}} {{end}}{{end}}", c), ""
		if service == "balancer" {
			want = "127.0.0.1"
		}
		if ports != want {
			t.Errorf("%s is published on %q, want %q", service, ports, want)
		}
	}
}

// try is the demo's check, through the balancer.
func (d *deployment) try(t *testing.T) {
	var got struct {
		OK       bool
		Tools    int
		Personas []world.Report
	}
	out := d.run(t, "docker compose run --rm -T try")
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if !got.OK || got.Tools == 0 || len(got.Personas) != len(world.Personas()) {
		t.Errorf("the check says\n%s", out)
	}
}
