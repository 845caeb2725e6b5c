package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/regogate/regogate/gateway/auth/mint"
)

// roleVariable has this very program be something else: the gateway, or a
// server that the gateway runs.
const (
	roleVariable = "REGOGATE_SOAK_ROLE"
	seedVariable = "REGOGATE_SOAK_SEED"
	roleGateway  = "gateway"
	roleServer   = "server"
)

// everybody may do everything: what is looked for here is not in the policy.
const everybody = "package mcp.authz\n\ndefault allow := false\n\nallow if input.claims.sub\n"

// gate is the gateway's process and the issuer of its clients' tokens.
type gate struct {
	url    string
	dir    string
	signer *mint.Signer
	cmd    *exec.Cmd
	log    *os.File

	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
}

// leastIdle is for sessions of clients: one whose client does nothing but
// listen is in use when its stream is kept alive, which is each 15 s.
const leastIdle = 40 * time.Second

// startGate starts a gateway in front of the servers, with its files in dir.
func startGate(ctx context.Context, dir string, servers object, o options) (*gate, error) {
	g := &gate{dir: dir}
	var err error
	if g.signer, err = mint.Generate("ES256"); err != nil {
		return nil, err
	}
	config, err := g.configure(servers, o)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	g.cmd = exec.Command(self, config)
	g.cmd.Env = append(os.Environ(), roleVariable+"="+roleGateway)
	if g.log, err = os.Create(filepath.Join(dir, "gateway.log")); err != nil {
		return nil, err
	}
	g.cmd.Stderr = g.log
	if g.in, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	g.out = bufio.NewReader(out)
	address, err := g.out.ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the gateway did not start: %s", g.logged()), g.stop())
	}
	g.url = "http://" + strings.TrimSpace(address)
	return g, g.ready(ctx)
}

func (g *gate) configure(servers object, o options) (string, error) {
	keys, err := mint.KeySet(g.signer)
	if err != nil {
		return "", err
	}
	config := encode(object{
		"listen": "127.0.0.1:0", "servers": servers,
		"auth": object{"issuers": []object{{
			"issuer": "soak", "audience": []string{"soak"}, "algorithms": []string{"ES256"}, "jwks_file": "keys.json",
		}}},
		"policy": object{"dir": "policies"}, "registry": object{"path": "catalogue.yaml"},
		"sessions": object{"idle": max(o.idle, leastIdle).String()},
	})
	for name, data := range map[string][]byte{
		"keys.json": keys, "policies/mcp/authz/authz.rego": []byte(everybody),
		"catalogue.yaml": []byte("version: 1\nservers: {}\n"), "regogate.yaml": config, // JSON is YAML
	} {
		path := filepath.Join(g.dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return "", err
		}
	}
	return filepath.Join(g.dir, "regogate.yaml"), nil
}

// ready waits until every server's list is known.
func (g *gate) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return fmt.Errorf("wait for the gateway: %w; its log: %s", err, g.logged())
		}
		var is struct{ Status string }
		err = json.NewDecoder(resp.Body).Decode(&is)
		resp.Body.Close()
		if err == nil && is.Status == "ready" {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// token mints a token of a principal.
func (g *gate) token(principal string, valid time.Duration) (string, error) {
	now := time.Now()
	return g.signer.Sign(map[string]any{
		"iss": "soak", "aud": "soak", "sub": principal, "iat": now.Unix(), "exp": now.Add(valid).Unix(),
	})
}

// look asks the process for its state.
func (g *gate) look() (l look, err error) {
	line, err := g.tell("look")
	if err != nil {
		return l, err
	}
	return l, json.Unmarshal([]byte(line), &l)
}

// stacks has the process write where its goroutines are, and a profile of its
// heap beside that.
func (g *gate) stacks(path string) error {
	answer, err := g.tell("stacks " + path)
	if err == nil && strings.TrimSpace(answer) != "ok" {
		err = fmt.Errorf("the gateway's process: %s", answer)
	}
	return err
}

func (g *gate) tell(what string) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, err := fmt.Fprintln(g.in, what); err != nil {
		return "", fmt.Errorf("ask the gateway's process: %w", err)
	}
	line, err := g.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the gateway's process is gone: %w: %s", err, g.logged())
	}
	return line, nil
}

// stop has the gateway drain and waits for its end, which has to be a good one.
func (g *gate) stop() error {
	g.in.Close()
	late := time.AfterFunc(40*time.Second, func() { _ = g.cmd.Process.Kill() })
	defer late.Stop()
	defer g.log.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("the gateway's process ended with %w: %s", err, g.logged())
	}
	return nil
}

// logged is the end of the gateway's log.
func (g *gate) logged() string {
	text, _ := os.ReadFile(g.log.Name())
	return string(text[max(0, len(text)-4000):])
}

// alarms are lines of the log that must not be there.
func (g *gate) alarms() (found []string) {
	text, _ := os.ReadFile(g.log.Name())
	for line := range strings.Lines(string(text)) {
		for _, bad := range []string{"panic", "DATA RACE", "fatal error", `"level":"ERROR"`} {
			if strings.Contains(line, bad) {
				found = append(found, strings.TrimSpace(line))
				break
			}
		}
	}
	return found
}
