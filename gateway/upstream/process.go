package upstream

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/registry/strictyaml"
)

// program says how to run a stdio server.
type program struct {
	server  string
	command string
	args    []string
	env     []string
	dir     string
	grace   time.Duration // between asking to end and forcing it
	limit   int
	shared  bool
	client  jsontext.Value
	log     *slog.Logger
	noise   *noise    // of its standard output
	chatter *throttle // of its standard error
}

// process is one running server: its conn, and the group of processes that it
// started.
type process struct {
	conn   *conn
	cmd    *exec.Cmd
	prog   *program
	in     *os.File
	out    *os.File
	err    *os.File
	exited chan struct{} // the process is gone and cmd.ProcessState is set
	gone   chan struct{} // nothing of it is left
}

// start runs the program in a process group of its own for a party. The error
// is of kind Unavailable.
func (p *program) start(s *starter, of *party) (*process, error) {
	cmd := exec.Command(p.command, p.args...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = p.env, p.dir, groupLeader()
	pr := &process{cmd: cmd, prog: p, exited: make(chan struct{}), gone: make(chan struct{})}
	theirs, err := pr.pipes()
	if err != nil {
		return nil, unavailable("open pipes for %s: %w", p.command, err)
	}
	err = s.run(cmd.Start)
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		for _, f := range []*os.File{pr.in, pr.out, pr.err} {
			f.Close()
		}
		return nil, unavailable("start the command: %w", err)
	}
	pr.conn = &conn{
		noise: p.noise, client: p.client, limit: p.limit, shared: p.shared, party: of,
	}
	pr.conn.serve(pr.read, pr.write)
	go pr.supervise()
	return pr, nil
}

func (pr *process) read(each func(line []byte, cut bool)) error {
	err := readLines(pr.out, pr.prog.limit, each)
	if err != nil && !errors.Is(err, os.ErrClosed) {
		return unavailable("read its standard output: %w", err)
	}
	return nil
}

func (pr *process) write(o outgoing) (sent bool, err error) {
	n, err := pr.in.Write(o.line)
	if err != nil {
		return n > 0, unavailable("write to its standard input: %w", err)
	}
	return true, nil
}

// pipes connects the three streams. They are ours rather than os/exec's, whose
// Wait would wait for every process that inherited one of them.
func (pr *process) pipes() (theirs []*os.File, err error) {
	var all []*os.File
	defer func() {
		if err != nil {
			for _, f := range all {
				f.Close()
			}
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			if r, w, err = os.Pipe(); err == nil {
				all = append(all, r, w)
			}
		}
		return r, w
	}
	stdin, in := pipe()
	out, stdout := pipe()
	errs, stderr := pipe()
	if err != nil {
		return nil, err
	}
	pr.in, pr.out, pr.err = in, out, errs
	pr.cmd.Stdin, pr.cmd.Stdout, pr.cmd.Stderr = stdin, stdout, stderr
	return []*os.File{stdin, stdout, stderr}, nil
}

// lastWords is how long the output and the status of a process that is ending
// are waited for.
const lastWords = 500 * time.Millisecond

// supervise sees the process through to its end, whoever brings it about, and
// leaves nothing of its group behind.
func (pr *process) supervise() {
	defer close(pr.gone)
	errDone := make(chan struct{})
	go func() {
		defer close(errDone)
		pr.prog.drain(pr.err)
	}()
	var status error
	go func() {
		status = pr.cmd.Wait()
		close(pr.exited)
	}()
	select {
	case <-pr.exited:
	case <-pr.conn.eof:
		if !within(pr.exited, lastWords) {
			pr.conn.fail(unavailable("it closed its standard output"))
		}
	case <-pr.conn.dead:
	}
	pr.end()
	killGroup(pr.cmd.Process.Pid)
	// What the process wrote before it ended is still to be read.
	within(pr.conn.eof, lastWords)
	pr.conn.fail(unavailable("the process ended: %s", ending(status)))
	within(errDone, lastWords)
	for _, f := range []*os.File{pr.in, pr.out, pr.err} {
		f.Close()
	}
	pr.conn.wg.Wait()
	<-errDone
}

// end asks the process to end, then its whole group, then forces it.
func (pr *process) end() {
	pr.in.Close()
	if within(pr.exited, min(lastWords, pr.prog.grace)) {
		return
	}
	endGroup(pr.cmd.Process.Pid)
	if within(pr.exited, pr.prog.grace) {
		return
	}
	killGroup(pr.cmd.Process.Pid)
	<-pr.exited
}

// close ends the process and returns when nothing of it is left.
func (pr *process) close() {
	pr.conn.fail(errClosed)
	pr.conn.party.close()
	<-pr.gone
}

// ending says how a process ended, safely for a log.
func ending(status error) string {
	if status == nil {
		return "exit status 0"
	}
	return status.Error()
}

// within waits for done, but no longer than d.
func within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// drain logs the standard error, bounded in length and rate, and reads on when
// it does not log: a server whose standard error fills up stops answering.
func (p *program) drain(stderr *os.File) {
	const shown = 2 << 10
	err := readLines(stderr, shown, func(line []byte, cut bool) {
		ok, dropped := p.chatter.allow(time.Now())
		if ok && len(line) > 0 {
			p.log.Info("server wrote to its standard error", "server", p.server,
				"line", escape(line), "cut", cut, "suppressed", dropped)
		}
	})
	if err != nil && !errors.Is(err, os.ErrClosed) {
		p.log.Warn("cannot read a server's standard error", "server", p.server, "error", err)
	}
}

// environment is what a process inherits, with what is configured on top. It
// leaves out whatever else the gateway's own environment holds, credentials
// above all.
func environment(configured map[string]strictyaml.Secret, lookup func(string) (string, bool)) []string {
	var env []string
	for _, name := range inherited() {
		if value, ok := lookup(name); ok {
			if _, set := configured[name]; !set {
				env = append(env, name+"="+value)
			}
		}
	}
	for name, value := range configured {
		env = append(env, name+"="+string(value))
	}
	slices.Sort(env)
	return env
}

func inherited() []string {
	names := []string{"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "SHELL", "TMPDIR", "TZ", "USER"}
	if runtime.GOOS == "windows" {
		names = append(names, "APPDATA", "LOCALAPPDATA", "PATHEXT", "SYSTEMROOT", "TEMP", "TMP", "USERPROFILE")
	}
	return names
}

// starter starts processes from one thread that lives as long as it does. On
// Linux a child dies with the thread that started it, not with the process
// (prctl(2), PR_SET_PDEATHSIG), and Go ends threads as it sees fit.
type starter struct {
	work chan func()
	stop <-chan struct{}
}

// newStarter returns a starter that works until stop is closed. spawn runs its
// loop on a goroutine.
func newStarter(stop <-chan struct{}, spawn func(func())) *starter {
	s := &starter{work: make(chan func()), stop: stop}
	spawn(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for {
			select {
			case f := <-s.work:
				f()
			case <-stop:
				return
			}
		}
	})
	return s
}

var errClosed = errors.New("the gateway has closed it")

// run calls f on the thread and returns its error, or errClosed.
func (s *starter) run(f func() error) error {
	result := make(chan error, 1)
	select {
	case s.work <- func() { result <- f() }:
		return <-result
	case <-s.stop:
		return errClosed
	}
}
