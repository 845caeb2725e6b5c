package clients

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Transport is one of the two HTTP transports of server-everything.
type Transport string

// The transports, as the server's command line names them.
const (
	StreamableHTTP Transport = "streamableHttp"
	SSE            Transport = "sse" // of revision 2024-11-05
)

func (t Transport) endpoint() string {
	if t == SSE {
		return "/sse"
	}
	return "/mcp"
}

// startTimeout bounds the start of a server.
const startTimeout = 30 * time.Second

// Everything starts server-everything on a free loopback port and returns its
// URL. The server ends with the test, and with ctx. Where it isn't installed,
// the test is skipped or failed as Dir says.
func Everything(ctx context.Context, t testing.TB, transport Transport) string {
	t.Helper()
	dir := Dir(t)
	ctx, cancel := context.WithCancel(ctx)
	argv := []string{"node", "--import", filepath.Join(dir, "loopback.mjs"), script(dir, "everything"), string(transport)}
	cmd := command(ctx, argv)
	cmd.Env = append(os.Environ(), "PORT=0")
	// A pipe that nobody writes to: loopback.mjs ends the server when it closes.
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatalf("starting server-everything: %v", err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatalf("starting server-everything: %v", err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting server-everything: %v", err)
	}
	port := make(chan string, 1)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		readPort(stderr, port)
	}()
	t.Cleanup(func() {
		cancel()
		<-drained
		_ = cmd.Wait() // it was killed
	})
	select {
	case p, ok := <-port:
		if ok {
			return "http://127.0.0.1:" + p + transport.endpoint()
		}
		t.Fatal("starting server-everything: it ended before it listened")
	case <-time.After(startTimeout):
		t.Fatalf("starting server-everything: it does not listen after %v", startTimeout)
	}
	return ""
}

// readPort sends the port that loopback.mjs tells and reads on until the end,
// so that the server never waits for a reader. It closes port at the end.
func readPort(stderr io.Reader, port chan<- string) {
	defer close(port)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if p, ok := strings.CutPrefix(lines.Text(), "loopback port "); ok {
			port <- p
			break
		}
	}
	_, _ = io.Copy(io.Discard, stderr)
}

// Command is a command line, such as a stdio backend of the gateway has.
type Command struct {
	Path string
	Args []string
	Env  map[string]string // in addition to the environment
}

// Stdio returns the command line that runs the server over stdio: everything,
// filesystem (which serves the directory dir), memory (which keeps its file in
// dir), sequential-thinking, or typescript, our server of the second TypeScript
// SDK, which speaks both eras and whose resources' scheme is dir. Where the server isn't installed, the test is skipped or failed as
// Dir says.
func Stdio(t testing.TB, server, dir string) Command {
	t.Helper()
	home := Dir(t)
	cmd := Command{Path: "node", Args: []string{script(home, server)}}
	switch server {
	case "everything":
		cmd.Args = append(cmd.Args, "stdio")
	case "filesystem":
		cmd.Args = append(cmd.Args, dir)
	case "memory":
		cmd.Env = map[string]string{"MEMORY_FILE_PATH": filepath.Join(dir, "memory.jsonl")}
	case "sequential-thinking":
		cmd.Env = map[string]string{"DISABLE_THOUGHT_LOGGING": "true"}
	case "typescript":
		cmd.Args = []string{filepath.Join(home, "ts-server.mjs"), dir}
	default:
		t.Fatalf("there is no server %q: want everything, filesystem, memory, sequential-thinking or typescript", server)
	}
	return cmd
}

func script(dir, server string) string {
	return filepath.Join(dir, "node_modules/@modelcontextprotocol/server-"+server+"/dist/index.js")
}
