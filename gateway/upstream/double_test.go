package upstream

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/registry/strictyaml"
)

// recordEnv names a file to which a double appends every line that it reads,
// with its process id before it.
const recordEnv = "REGOGATE_TEST_RECORD"

// double is a stdio server whose faults are its traits.
type double struct {
	traits []string
	out    *bufio.Writer
	mu     sync.Mutex
	held   map[string]bool // ids of calls that are not answered
	// listens is the id of the last subscriptions/listen.
	listens string
	listed  map[string]int // how many times, by method
}

// doubleConfig is the configuration that runs the test binary as a double.
func doubleConfig(t *testing.T, traits ...string) (Config, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	record := t.TempDir() + "/record"
	return Config{
		Command: self,
		Env: map[string]strictyaml.Secret{
			doubleEnv: strictyaml.Secret("on," + strings.Join(traits, ",")), recordEnv: strictyaml.Secret(record),
			"GORACE": "atexit_sleep_ms=0", // else a double takes a second to end
		},
		StopTimeout: time.Second,
	}, record
}

// recorded returns the lines that doubles have read so far.
func recorded(t *testing.T, record string) []string {
	t.Helper()
	data, err := os.ReadFile(record)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func countRecorded(t *testing.T, record, what string) (n int) {
	t.Helper()
	for _, line := range recorded(t, record) {
		if strings.Contains(line, what) {
			n++
		}
	}
	return n
}

func (d *double) is(trait string) bool { return slices.Contains(d.traits, trait) }

func runDouble(traits []string) {
	if slices.Contains(traits, "official") {
		runOfficial()
		return
	}
	d := &double{traits: traits, out: bufio.NewWriter(os.Stdout), held: map[string]bool{}, listed: map[string]int{}}
	d.prelude()
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			d.record(line)
			d.serve(bytes.TrimSpace(line))
		}
		if err != nil {
			break
		}
	}
	if d.is("stubborn") {
		select {}
	}
}

func (d *double) prelude() {
	if d.is("exits") {
		os.Exit(1)
	}
	if d.is("stubborn") {
		signal.Ignore(syscall.SIGTERM)
	}
	if d.is("grandchild") {
		child := exec.Command("sleep", "600")
		child.Stdout = os.Stdout // and so holds our output open
		if err := child.Start(); err != nil {
			panic(err)
		}
		d.append("grandchild " + strconv.Itoa(child.Process.Pid))
	}
	if d.is("banner") {
		d.raw("Server v1 started\r\n\x1b[2K 50% \x1b]0;title\x07{\"level\":\"info\"}\n\n{\"level\":\"info\"}\r\n[1,2]\n")
	}
	if d.is("chatty") {
		chatter := bytes.Repeat([]byte("on standard error \x1b[31m\u202e\n"), 1<<20/24)
		os.Stderr.Write(chatter)
	}
	if d.is("endless") {
		os.Stderr.Write(bytes.Repeat([]byte{'x'}, 5<<20))
	}
}

func (d *double) append(text string) {
	f, err := os.OpenFile(os.Getenv(recordEnv), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintf(f, "%d %s\n", os.Getpid(), text)
}

func (d *double) record(line []byte) { d.append(string(bytes.TrimSpace(line))) }

func (d *double) raw(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out.WriteString(text)
	d.out.Flush()
}

func (d *double) send(text string) {
	ending := "\n"
	if d.is("crlf") {
		ending = "\r\n"
	}
	d.raw(text + ending)
}

func (d *double) result(id mcp.ID, result string) {
	d.send(`{"jsonrpc":"2.0","id":` + string(id.Raw()) + `,"result":` + result + `}`)
}

func (d *double) serve(line []byte) {
	m, bad := mcp.Parse(line)
	if bad != nil {
		d.append("BAD " + bad.Message)
		return
	}
	switch m.Method {
	case discover:
		d.discover(m)
	case "initialize":
		d.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"early"}}`)
		d.result(m.ID, `{"protocolVersion":"2025-06-18","capabilities":`+d.capabilities()+`,"serverInfo":{"name":"double","version":"1"},"instructions":"be nice"}`)
	case "notifications/initialized":
		if d.is("asks") {
			d.send(`{"jsonrpc":"2.0","id":"s1","method":"ping"}`)
			d.send(`{"jsonrpc":"2.0","id":2,"method":"roots/list"}`)
		}
	case "tools/list":
		d.result(m.ID, `{"resultType":"complete","tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"slow","inputSchema":{"type":"object"}}]}`)
	case "prompts/list", "resources/list", "resources/templates/list":
		d.list(m)
	case "tools/call":
		d.call(m)
	case subscribe, unsubscribe:
		d.result(m.ID, `{}`)
	case listen:
		params, _ := mcp.Split(m.Params)
		d.listens = string(m.ID.Raw())
		d.send(`{"jsonrpc":"2.0","method":"` + acknowledged + `","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + d.listens +
			`},"notifications":` + string(mcp.Get(params, "notifications")) + `}}`)
	}
}

// capabilities: one that lists has more than tools.
func (d *double) capabilities() string {
	if d.is("lists") {
		return `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}`
	}
	return `{"tools":{"listChanged":true}}`
}

// list has one thing more each time.
func (d *double) list(m *mcp.Message) {
	d.listed[m.Method]++
	d.result(m.ID, numbered(m.Method, d.listed[m.Method]))
}

func (d *double) discover(m *mcp.Message) {
	switch {
	case d.is("modern"):
		d.result(m.ID, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":`+d.capabilities()+`,"instructions":"modern","ttlMs":1,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"double","version":"2"}}}`)
	case d.is("future"):
		d.send(`{"jsonrpc":"2.0","id":` + string(m.ID.Raw()) + `,"error":{"code":-32022,"message":"no","data":{"supported":["2031-01-01"],"requested":"2026-07-28"}}}`)
	case d.is("mute"):
	case d.is("fragile"):
		os.Exit(3)
	default:
		d.send(`{"jsonrpc":"2.0","id":` + string(m.ID.Raw()) + `,"error":{"code":-32601,"message":"unknown"}}`)
	}
}

// call serves a tool: its name says what happens.
func (d *double) call(m *mcp.Message) {
	params, _ := mcp.Split(m.Params)
	name, _ := mcp.Text(mcp.Get(params, "name"))
	meta, _ := mcp.ReadMeta(m.Params)
	switch name {
	case "echo":
		d.result(m.ID, string(m.Params))
	case "pid":
		d.result(m.ID, `{"pid":`+strconv.Itoa(os.Getpid())+`}`)
	case "env":
		env := os.Environ()
		slices.Sort(env)
		d.result(m.ID, `{"env":`+string(mcp.String(strings.Join(env, "\n")))+`}`)
	case "chat":
		os.Stderr.Write(bytes.Repeat([]byte("chatter\n"), 100<<10/8))
		d.result(m.ID, `{}`)
	case "twice":
		d.result(mcp.NumberID(987654), `{"wrong":1}`)
		d.result(m.ID, `{"n":1}`)
		d.result(m.ID, `{"n":2}`)
	case "progress":
		for i := range 3 {
			d.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, meta.ProgressToken, i))
		}
		d.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"other","progress":9}}`)
		d.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hello"}}`)
		d.result(m.ID, `{}`)
	case "invalid":
		d.send(`{"jsonrpc":"2.0","result":{"a":1,"a":2},"id":` + string(m.ID.Raw()) + `}`)
	case "large":
		d.result(m.ID, `"`+strings.Repeat("x", 1<<20)+`"`)
	case "die":
		os.Exit(7)
	case "hush":
		d.out.Flush()
		os.Stdout.Close()
	case "change-prompts", "change-resources":
		d.send(`{"jsonrpc":"2.0","method":"notifications/` + strings.TrimPrefix(name, "change-") + `/list_changed"}`)
		d.result(m.ID, `{}`)
	case "change":
		d.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		d.result(m.ID, `{}`)
	case "withdraw":
		d.send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		d.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`)
		d.result(m.ID, `{}`)
	case "asks":
		d.send(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		d.result(m.ID, `{}`)
	case "touch":
		d.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"whose?"}}`)
		d.send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://a/b"}}`)
		d.result(m.ID, `{}`)
	case "unlisten":
		d.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + d.listens + `}}`)
		d.result(m.ID, `{}`)
	case "slow": // is never answered
	case "sorry":
		d.send(`{"jsonrpc":"2.0","id":` + string(m.ID.Raw()) + `,"error":{"code":-32000,"message":"quota","data":{"left":0}}}`)
	default:
		d.send(`{"jsonrpc":"2.0","id":` + string(m.ID.Raw()) + `,"error":{"code":-32602,"message":"no such tool"}}`)
	}
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// gatewayEnv, when set, makes the test binary act as a gateway that has a
// double as its server and whose record it names.
const gatewayEnv = "REGOGATE_TEST_GATEWAY"

func runGateway() {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	p, err := New(map[string]Config{"gamma": {Command: self, Env: map[string]strictyaml.Secret{
		doubleEnv: "on,stubborn", recordEnv: strictyaml.Secret(os.Getenv(gatewayEnv)),
	}}}, quick(nil))
	if err != nil {
		panic(err)
	}
	go p.Run(context.Background())
	// Threads come and go; the server must not go with one of them.
	for {
		done := make(chan struct{})
		go func() {
			runtime.LockOSThread() // for good, so that the thread ends
			close(done)
		}()
		<-done
		time.Sleep(time.Millisecond)
	}
}
