package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/gateway/mcp"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"regogate":     main,
		"stdio-double": stdioDouble,
		"list-tools":   listTools,
	})
}

// TestScripts runs the command line as a user does. The scripts find an MCP
// server over HTTP at $HTTP_DOUBLE, another one with schemas that cannot be used
// at $HTTP_DOUBLE/odd/, one over standard input and output as
// stdio-double, and a free address at $FREE. UPDATE=1 in the environment rewrites
// what they expect.
func TestScripts(t *testing.T) {
	doubles := http.NewServeMux()
	doubles.Handle("/", &world.Server{Name: "web", Tools: []jsontext.Value{
		tool("search_invoices", `{"readOnlyHint":true}`),
		tool("create_refund", `{"readOnlyHint":false,"destructiveHint":false}`),
	}})
	doubles.Handle("/odd/", &world.Server{Name: "odd", Tools: []jsontext.Value{
		jsontext.Value(`{"name":"remote","inputSchema":{"type":"object","$ref":"https://example.com/schema"}}`),
		jsontext.Value(`{"name":"lookahead","inputSchema":{"type":"object","properties":{"a":{"pattern":"(?=a)"}}}}`),
		tool("good", `{}`),
	}})
	double := httptest.NewServer(doubles)
	t.Cleanup(double.Close)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			env.Setenv("FREE", l.Addr().String())
			env.Setenv("HTTP_DOUBLE", double.URL)
			return l.Close()
		},
		Condition: func(name string) (bool, error) {
			if name == "opacli" {
				return !strings.Contains(opaCommand().Short, "not in this build"), nil
			}
			return false, fmt.Errorf("unknown condition %s", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"dated":    dated,
			"digests":  digests,
			"envsubst": envsubst,
			"fetch":    fetch,
			"mode":     mode,
			"normal":   normal,
			"settings": settings,
		},
	})
}

func tool(name, annotations string) jsontext.Value {
	return jsontext.Value(`{"name":"` + name + `","description":"Does ` + name + `.","inputSchema":{"type":"object"},"annotations":` + annotations + `}`)
}

// envsubst fills $PATH and $HTTP_DOUBLE into a file: envsubst FROM TO. Other
// references stay.
func envsubst(ts *testscript.TestScript, _ bool, args []string) {
	text := strings.NewReplacer("$PATH", ts.Getenv("PATH"), "$HTTP_DOUBLE", ts.Getenv("HTTP_DOUBLE")).Replace(ts.ReadFile(args[0]))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o644))
}

// mode checks the permissions of a file: mode 600 FILE.
func mode(ts *testscript.TestScript, neg bool, args []string) {
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := fmt.Sprintf("%o", info.Mode().Perm()); (got == args[0]) == neg {
		ts.Fatalf("%s has mode %s, want %s", args[1], got, args[0])
	}
}

// settings copies those lines of a configuration from one that begins with the
// first text to before the one that begins with the second: settings FILE FROM
// TO OUT.
func settings(ts *testscript.TestScript, _ bool, args []string) {
	_, text, ok := strings.Cut("\n"+ts.ReadFile(args[0]), "\n"+args[1])
	part, _, ok2 := strings.Cut(text, "\n"+args[2])
	if !ok || !ok2 {
		ts.Fatalf("%s has no lines from %q to %q", args[0], args[1], args[2])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[3]), []byte(args[1]+part+"\n"), 0o644))
}

// normal copies a file with what differs from run to run in words: normal FROM
// TO.
func normal(ts *testscript.TestScript, _ bool, args []string) {
	text := strings.NewReplacer(ts.Getenv("HTTP_DOUBLE"), "HTTP_DOUBLE", ts.Getenv("FREE"), "FREE").Replace(ts.ReadFile(args[0]))
	text = regexp.MustCompile(`\(\d+ files\)`).ReplaceAllString(text, "(N files)")
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o644))
}

// digests copies a file with every digest, or the beginning of one, in words:
// digests FROM TO.
func digests(ts *testscript.TestScript, _ bool, args []string) {
	text := regexp.MustCompile(`\b([0-9a-f]{64}|[0-9a-f]{12})\b`).ReplaceAllString(ts.ReadFile(args[0]), "DIGEST")
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o644))
}

// dated puts a word in the place of every time in a file: dated FILE.
func dated(ts *testscript.TestScript, _ bool, args []string) {
	text := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(ts.ReadFile(args[0]), "TIME")
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o644))
}

// stdioDouble is an MCP server on standard input and output, with the tools of the
// file that DOUBLE_TOOLS names, where it does. It ends at once, with a last word,
// where DOUBLE_TOKEN is not what it wants.
func stdioDouble() {
	if os.Getenv("DOUBLE_TOKEN") != "let-me-in-0123456789" {
		fmt.Fprintln(os.Stderr, "no such token: "+os.Getenv("DOUBLE_TOKEN"))
		os.Exit(3)
	}
	server := &world.Server{Name: "stdio", Tools: []jsontext.Value{
		tool("delete_user", `{}`), tool("get_message", `{"readOnlyHint":true}`), tool("frobnicate", `{}`), tool("run_sql", `{}`),
	}}
	if name := os.Getenv("DOUBLE_TOOLS"); name != "" {
		text, err := os.ReadFile(name)
		if err == nil {
			server.Tools, err = mcp.Elements(text)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(in.Bytes())))
		if answer.Body.Len() > 0 {
			fmt.Println(answer.Body.String())
		}
	}
}

// listTools prints the names of the tools that a gateway shows the bearer of a
// token, once it is ready: list-tools URL TOKENFILE. With a third argument it
// waits until there are that many.
func listTools() {
	names, err := listed(os.Args[1], os.Args[2], os.Args[3:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(strings.Join(names, "\n"))
}

func listed(url, tokenFile string, number []string) (names []string, err error) {
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := &world.Client{URL: url + "/mcp", Token: strings.TrimSpace(string(token))}
	for {
		if err = ready(ctx, url); err == nil {
			names, err = client.List(ctx)
		}
		if err == nil && (len(number) == 0 || number[0] == strconv.Itoa(len(names))) {
			return names, nil
		}
		select {
		case <-ctx.Done():
			return names, errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func ready(ctx context.Context, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", resp.Status)
	}
	return nil
}
