package cases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/regogate/regogate/gateway"
)

// check loads a configuration as the program does before it starts anything.
func (p *player) check(ctx context.Context, s *Step) []string {
	dir, err := p.env.Dir()
	if err != nil {
		return []string{err.Error()}
	}
	files := map[string]string{"regogate.yaml": s.Check.Config}
	for name, text := range s.Check.Files {
		files[name] = text
	}
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(text), 0o600)); err != nil {
			return []string{err.Error()}
		}
	}
	env := func(name string) (string, bool) {
		value, ok := s.Check.Env[name]
		return value, ok
	}
	_, found := gateway.Load(filepath.Join(dir, "regogate.yaml"), env, nil)
	var lines []string
	for _, f := range found {
		lines = append(lines, strings.ReplaceAll(f.String(), dir+string(filepath.Separator), ""))
	}
	problems := s.Expect.lines("gateway.Load", lines)
	if p.env.Binary != "" {
		problems = append(problems, p.checkProgram(ctx, s, dir)...)
	}
	return problems
}

// checkProgram has the program itself check the configuration: it must fail
// exactly when there are problems, and say at least the same. It also tries what
// the configuration names, so it may say more.
func (p *player) checkProgram(ctx context.Context, s *Step, dir string) (problems []string) {
	cmd := exec.CommandContext(ctx, p.env.Binary, "serve", "--check", "--config", filepath.Join(dir, "regogate.yaml"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for name, value := range s.Check.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if ended := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ended) {
		return []string{err.Error()}
	}
	said := strings.ReplaceAll(stderr.String(), dir+string(filepath.Separator), "")
	if failed := err != nil; failed != (len(s.Expect.Problems) > 0) {
		problems = append(problems, fmt.Sprintf("serve --check: %v, with standard error %s", err, clip(said)))
	}
	for _, want := range s.Expect.Problems {
		if !strings.Contains(said, want) {
			problems = append(problems, fmt.Sprintf("serve --check says %s, want %q", clip(said), want))
		}
	}
	for _, secret := range s.Expect.Not {
		if strings.Contains(said, secret) {
			problems = append(problems, fmt.Sprintf("serve --check says %s, with the secret %s", clip(said), secret))
		}
	}
	return problems
}

// lines compares what was said with the problems that are expected, in order.
func (e *Expect) lines(who string, got []string) (problems []string) {
	if len(got) != len(e.Problems) {
		return []string{fmt.Sprintf("%s has %d problems, want %d:\n%s", who, len(got), len(e.Problems), strings.Join(got, "\n"))}
	}
	for i, want := range e.Problems {
		if !strings.Contains(got[i], want) {
			problems = append(problems, fmt.Sprintf("%s says %q, want %q", who, got[i], want))
		}
		for _, secret := range e.Not {
			if strings.Contains(got[i], secret) {
				problems = append(problems, fmt.Sprintf("%s says %q, which is a secret", who, secret))
			}
		}
	}
	return problems
}
