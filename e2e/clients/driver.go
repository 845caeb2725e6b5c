package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// driver returns a function that runs the client of one of the scripts here,
// by the command line that README.md describes.
func driver(interpreter []string, script string) func(context.Context, testing.TB, Spec) (Result, error) {
	return func(ctx context.Context, t testing.TB, spec Spec) (Result, error) {
		t.Helper()
		dir := Dir(t)
		argv := slices.Concat(interpreter, []string{filepath.Join(dir, script)}, flags(spec))
		if strings.Contains(argv[0], "/") {
			argv[0] = filepath.Join(dir, argv[0])
		}
		result, log, err := output(ctx, t.TempDir(), argv, spec.Token)
		if log != "" {
			t.Logf("log of %s:\n%s", script, log)
		}
		return result, err
	}
}

func flags(spec Spec) []string {
	args := []string{"--url", spec.URL, "--era", string(spec.Era)}
	for _, call := range spec.Calls {
		args = append(args, "--call", call.flag())
	}
	if spec.Answer != nil {
		args = append(args, "--answer", string(spec.Answer))
	}
	if spec.Sample != "" {
		args = append(args, "--sample", spec.Sample)
	}
	for _, root := range spec.Roots {
		args = append(args, "--root", root)
	}
	return args
}

// flag words the call for a driver's command line. A plain tool call's arguments
// go there as they are.
func (c Call) flag() string {
	arguments := c.Arguments
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	if c.method() == toolsCall && !c.Progress && !c.Cancel && c.LogLevel == "" {
		return c.Name + "=" + string(arguments)
	}
	// Strings, booleans and JSON that its caller wrote: this cannot fail.
	text, _ := json.Marshal(struct {
		Method    string          `json:"method"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Progress  bool            `json:"progress"`
		Cancel    bool            `json:"cancel"`
		LogLevel  string          `json:"logLevel"`
	}{c.method(), c.Name, arguments, c.Progress, c.Cancel, c.LogLevel})
	return string(text)
}

const toolsCall = "tools/call"

func (c Call) method() string {
	if c.Method == "" {
		return toolsCall
	}
	return c.Method
}

// output runs the driver, with a home directory of its own since some clients
// keep credentials and settings there, and decodes what it prints. It also
// returns the driver's log.
func output(ctx context.Context, home string, argv []string, token string) (Result, string, error) {
	cmd := command(ctx, argv)
	cmd.Dir = home
	cmd.Env = append(os.Environ(),
		"HOME="+home, "XDG_CONFIG_HOME=", "XDG_DATA_HOME=", "XDG_CACHE_HOME=", "XDG_STATE_HOME=",
		"NO_PROXY=127.0.0.1,localhost,::1", "MCP_TOKEN="+token)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	log := stderr.String()
	if ctx.Err() != nil {
		return Result{}, log, fmt.Errorf("waiting for the driver: %w", context.Cause(ctx))
	}
	if err != nil {
		return Result{}, log, fmt.Errorf("running the driver: %w", err)
	}
	var out struct {
		Result
		Fault *Fault `json:"fault"`
	}
	if err := json.Unmarshal([]byte(stdout.String()), &out); err != nil {
		return Result{}, log, fmt.Errorf("reading the driver's output: %w", err)
	}
	if out.Fault != nil {
		return out.Result, log, out.Fault
	}
	return out.Result, log, nil
}

// command prepares a process that is ended, with all that it started, when ctx is done.
func command(ctx context.Context, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	group(cmd)
	return cmd
}
