package cases

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/upstream"
	"github.com/regogate/regogate/registry/strictyaml"
)

// DoubleEnv, when set, makes the program that calls Double a stdio server; it
// names the file that says how it behaves.
const DoubleEnv = "REGOGATE_CASES_DOUBLE"

// manners is what that file says.
type manners struct {
	Name   string
	Record string // file to which every line that is read is appended, after the process id
	Backend
}

// pipe is a backend over stdio: the program that runs the cases, started again.
type pipe struct {
	name, record string
	log          *arrivals
	seen         int // bytes of the record that were read
	pids         []int
	mu           sync.Mutex
}

// newPipe writes the manners into dir and says how the backend is started.
func newPipe(name string, spec Backend, dir string, log *arrivals) (*pipe, upstream.Config, error) {
	p := &pipe{name: name, record: filepath.Join(dir, name+".record"), log: log}
	self, err := os.Executable()
	if err != nil {
		return nil, upstream.Config{}, err
	}
	told := spec
	told.Config = gateway.Server{} // the gateway's business
	data, err := json.Marshal(manners{Name: name, Record: p.record, Backend: told})
	if err != nil {
		return nil, upstream.Config{}, err
	}
	file := filepath.Join(dir, name+".json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, upstream.Config{}, err
	}
	c := upstream.Config{Command: self, Env: map[string]strictyaml.Secret{DoubleEnv: strictyaml.Secret(file)}}
	if spec.Stdio.Shell != "" {
		c.Command, c.Args = "sh", []string{"-c", spec.Stdio.Shell, self}
	}
	return p, c, nil
}

// gather moves what the processes wrote down to the arrivals.
func (p *pipe) gather() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	data, err := os.ReadFile(p.record)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	end := bytes.LastIndexByte(data, '\n') + 1
	for line := range bytes.Lines(data[p.seen:end]) {
		pid, message, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if string(message) != "started" {
			p.log.add(arrived{backend: p.name, body: message})
			continue
		}
		n, err := strconv.Atoi(string(pid))
		if err != nil {
			return fmt.Errorf("read what %s wrote down: %w", p.name, err)
		}
		p.pids = append(p.pids, n)
	}
	p.seen = end
	return nil
}

// processes returns the processes that were started so far; each leads a group.
func (p *pipe) processes() ([]int, error) {
	if err := p.gather(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]int(nil), p.pids...), nil
}

// alive counts the processes of these groups that are no zombies.
func alive(groups []int) (int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	n := 0
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it has just ended
		}
		// After the command's name in brackets: state, parent, group.
		_, rest, _ := strings.Cut(string(data[bytes.LastIndexByte(data, ')')+1:]), " ")
		fields := strings.Fields(rest)
		for _, g := range groups {
			if len(fields) > 2 && fields[0] != "Z" && fields[2] == strconv.Itoa(g) {
				n++
			}
		}
	}
	return n, nil
}

// Double is a stdio server that behaves as the file says and returns when its
// input ends.
func Double(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	d := &double{out: bufio.NewWriter(os.Stdout)}
	if err := json.Unmarshal(data, &d.manners); err != nil {
		return err
	}
	d.script = newScript(d.Name, d.Backend)
	if err := d.note("started"); err != nil {
		return err
	}
	d.prelude()
	return d.serve(os.Stdin)
}

type double struct {
	manners
	script *script
	mu     sync.Mutex
	out    *bufio.Writer
}

// note appends a line to the record, in one write.
func (d *double) note(what string) error {
	f, err := os.OpenFile(d.Record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%d %s\n", os.Getpid(), what)
	return err
}

func (d *double) prelude() {
	if d.Stdio.Exits {
		os.Exit(1)
	}
	if d.Stdio.Stubborn {
		signal.Ignore(syscall.SIGTERM)
	}
	chatter(int(d.Stdio.Stderr), "on standard error \x1b[31mred\u202e\n")
	chatter(int(d.Stdio.StderrLine), "\x1b]0;title\x07\u202e")
	d.write(d.Stdio.Prelude)
}

// chatter writes about so many bytes to standard error.
func chatter(size int, line string) {
	_, _ = os.Stderr.WriteString(strings.Repeat(line, size/len(line)))
}

func (d *double) write(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, _ = d.out.WriteString(text)
	_ = d.out.Flush()
}

func (d *double) serve(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := d.note(string(line)); err != nil {
				return err
			}
			d.handle(line)
		}
		switch {
		case err == io.EOF && d.Stdio.Stubborn:
			time.Sleep(time.Hour) // it is killed before
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func (d *double) handle(line []byte) {
	m, bad := mcp.ParseBackend(line)
	if bad != nil || m.Kind() != mcp.Request {
		return
	}
	if m.Method == "tools/call" {
		chatter(int(d.Stdio.StderrCall), "working\n")
		if t, ok := d.script.tool(calledTool(m)); ok && t.Dies {
			os.Exit(7)
		} else if ok && t.Mute {
			_ = os.Stdout.Close()
			return
		}
	}
	go d.reply(m)
}

func (d *double) reply(m *mcp.Message) {
	end := "\n"
	if d.Stdio.CRLF {
		end = "\r\n"
	}
	answer := string(d.script.answer(context.Background(), "", m)) + end
	if d.Stdio.Twice {
		answer = `{"jsonrpc":"2.0","id":987654321,"result":{"stray":true}}` + end + answer + answer
	}
	d.write(d.Stdio.Noise + answer)
}
