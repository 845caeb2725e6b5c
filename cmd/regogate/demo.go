package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/regogate/regogate/e2e/world"
	"github.com/regogate/regogate/registry"
)

func demoCommand() *cobra.Command {
	var listen string
	var check bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a small whole world on loopback: issuer, 24 MCP servers with 507 tools, and the gateway in front",
		Long: "Runs an issuer, MCP servers that offer the shipped catalogue and write down every call that\n" +
			"reaches them, and the gateway in front of them with the shipped policies. It lets five personas\n" +
			"list and call, shows what arrived at the servers, and stays up for you to try.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			options := world.Options{Listen: listen, Log: demoLog(cmd.ErrOrStderr())}
			switch {
			case !check:
				options.Key = demoKey()
				warnOfOthers(cmd.ErrOrStderr(), listen)
			case !cmd.Flags().Changed("listen"):
				options.Listen = ""
			}
			w, err := world.Start(ctx, options)
			if errors.Is(err, syscall.EADDRINUSE) {
				return fmt.Errorf("regogate demo: %w: choose another with --listen, such as --listen 127.0.0.1:0", err)
			}
			if err != nil {
				return fmt.Errorf("regogate demo: %w", err)
			}
			if check {
				err = demoCheck(ctx, w.Try, len(w.Tools), len(w.Servers), cmd.OutOrStdout())
			} else {
				err = demoShow(ctx, w, &paint{w: cmd.OutOrStdout(), on: isTerminal(cmd.OutOrStdout())})
			}
			return errors.Join(err, w.Close())
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "host:port of the gateway; port 0 takes a free one, as --check does by itself")
	cmd.Flags().BoolVar(&check, "check", false, "print one JSON object and exit: 0 only when what arrived is what the policy allows")
	cmd.AddCommand(demoParts()...)
	return cmd
}

// warnOfOthers says what it means that others can reach the demo.
func warnOfOthers(w io.Writer, listen string) {
	host, _, err := net.SplitHostPort(listen)
	if addr, _ := netip.ParseAddr(host); err == nil && host != "localhost" && !addr.Unmap().IsLoopback() {
		fmt.Fprintf(w, "warning: --listen %s is not on loopback: whoever can reach it and sees what is printed here, a token of an admin above all, may call every tool of the demo\n", listen)
	}
}

// demoKey is the file of the key that signs the demo's tokens, so that
// "regogate token" can make more of them; "" where there is no place for it.
func demoKey() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	dir = filepath.Join(dir, "regogate")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ""
	}
	return filepath.Join(dir, "demo-key.pem")
}

// demoLog shows what goes wrong and nothing else: the demo is about decisions.
func demoLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// demoCheck lets every persona try every tool.
func demoCheck(ctx context.Context, try func(context.Context, string) (world.Report, error), tools, servers int, out io.Writer) error {
	result := struct {
		Tools    int            `json:"tools"`
		Servers  int            `json:"servers"`
		Personas []world.Report `json:"personas"`
		OK       bool           `json:"ok"`
	}{Tools: tools, Servers: servers, OK: true}
	for _, persona := range world.Personas() {
		report, err := try(ctx, persona)
		if err != nil {
			return fmt.Errorf("regogate demo: persona %s: %w", persona, err)
		}
		result.Personas = append(result.Personas, report)
		result.OK = result.OK && len(report.Problems) == 0
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(result); err != nil {
		return err
	}
	if !result.OK {
		return errors.New("regogate demo: what arrived at the servers is not what the policy allows")
	}
	return nil
}

// demoShow prints what each persona meets, and stays up until the context
// ends.
func demoShow(ctx context.Context, w *world.World, p *paint) error {
	p.line("")
	p.line("  %s  %d tools on %d MCP servers behind %s", p.bold("regogate demo"), len(w.Tools), len(w.Servers), p.bold(w.URL+"/mcp"))
	p.line("")
	for _, persona := range world.Personas() {
		if err := demoPersona(ctx, w, p, persona); err != nil {
			return fmt.Errorf("persona %s: %w", persona, err)
		}
	}
	if err := demoCommands(w, p); err != nil {
		return err
	}
	<-ctx.Done()
	p.line("\n  bye")
	return nil
}

// demoPersona shows one persona's view, one call that goes through and one
// that does not.
func demoPersona(ctx context.Context, w *world.World, p *paint, persona string) error {
	client, err := w.Client(persona)
	if err != nil {
		return err
	}
	names, err := client.List(ctx)
	if err != nil {
		return err
	}
	p.line("  %s sees %s of %d tools", p.bold(fmt.Sprintf("%-10s", persona)), p.bold(fmt.Sprint(len(names))), len(w.Tools))
	for _, s := range w.Servers {
		s.Forget()
	}
	allowed, forbidden := examples(persona, w.Tools, names)
	if allowed != "" {
		out, err := client.Call(ctx, allowed, nil)
		if err != nil {
			return err
		}
		p.line("    %s %-44s %s", p.green("allowed"), allowed, ended(out))
	}
	if forbidden != "" {
		w.Records.Forget()
		out, err := client.Call(ctx, forbidden, nil)
		if err != nil {
			return err
		}
		id, reasons := demoRecord(w, persona)
		p.line("    %s %-44s %s", p.red("refused"), forbidden, ended(out))
		p.line("            on record: decision %s, reasons %s", id, strings.Join(reasons, ", "))
	}
	if forbidden == "" {
		p.line("    nothing is refused: every tool is in its grant")
	}
	p.line("            arrived at the servers: %s", strings.Join(arrivals(w), ", "))
	p.line("")
	return nil
}

// telling are tools whose names say most about each persona.
var telling = map[string]struct{ allowed, forbidden string }{
	"payments":  {"stripe__create_refund", "github__delete_file"},
	"developer": {"github__create_pull_request", "stripe__create_refund"},
	"support":   {"gmail__create_draft", "gmail__batch_delete_messages"},
	"analyst":   {"google-analytics__runReport", "mongodb__delete-many"},
	"admin":     {"kubernetes__pods_exec", ""},
}

// examples picks a call for each answer: a telling one where the policy in
// force gives that answer to it, else the most harmful tool of the kind.
func examples(persona string, tools []registry.Tool, visible []string) (allowed, forbidden string) {
	allowed, forbidden = mostHarmful(tools, visible)
	if t := telling[persona]; slices.Contains(visible, t.allowed) {
		allowed = t.allowed
	}
	if t := telling[persona]; t.forbidden != "" && forbidden != "" && !slices.Contains(visible, t.forbidden) {
		forbidden = t.forbidden
	}
	return allowed, forbidden
}

func mostHarmful(tools []registry.Tool, visible []string) (allowed, forbidden string) {
	best, worst := -1, -1
	for _, t := range tools {
		name, _ := registry.Exposed(t.Server, t.Name)
		harm := slices.Index(registry.Effects(), t.Effect)
		if slices.Contains(visible, name) {
			if harm > best {
				allowed, best = name, harm
			}
		} else if harm > worst {
			forbidden, worst = name, harm
		}
	}
	return allowed, forbidden
}

// demoRecord waits for the record of the refused call; it is written when the
// request has been answered.
func demoRecord(w *world.World, persona string) (id string, reasons []string) {
	for range 100 {
		for _, r := range w.Records.All() {
			if !r.Allowed && r.List == nil && strings.HasPrefix(r.Subject.Claim("sub"), persona) {
				return r.ID, r.Reasons
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return "(none)", nil
}

func arrivals(w *world.World) []string {
	var names []string
	for name, s := range w.Servers {
		for _, call := range s.Calls() {
			names = append(names, name+"__"+call.Tool)
		}
	}
	slices.Sort(names)
	if names == nil {
		return []string{"nothing"}
	}
	return names
}

func ended(out world.Outcome) string {
	if out.Error != nil {
		return fmt.Sprintf("error %d: %s", out.Code, out.Text)
	}
	return "result"
}

func demoCommands(w *world.World, p *paint) error {
	p.line("  %s", p.bold("Try it (tokens are good for a day)"))
	p.line("")
	var developer string
	for _, persona := range world.Personas() {
		token, err := w.Token(persona, 24*time.Hour)
		if err != nil {
			return err
		}
		if persona == "developer" {
			developer = token
		}
		p.line("  export %s=%s", strings.ToUpper(persona), token)
	}
	p.line("")
	p.line("  # more tokens, from another terminal")
	p.line("  regogate token --persona developer")
	p.line("")
	p.line("  # any client of the current protocol revision; here by hand")
	p.line("  # (names alone: | jq -r '.result.tools[].name')")
	demoCurl(w, p, "tools/list", "")
	p.line("")
	p.line("  # a call that goes through, and one that does not")
	demoCurl(w, p, "tools/call", telling["developer"].allowed)
	demoCurl(w, p, "tools/call", telling["developer"].forbidden)
	p.line("")
	p.line("  # the MCP Inspector")
	p.line("  npx -y @modelcontextprotocol/inspector@2.12.0 --cli --server-url %s/mcp --transport http --header \"Authorization: Bearer $DEVELOPER\" --method tools/list", w.URL)
	p.line("")
	p.line("  # a desktop client's configuration")
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"regogate": map[string]any{
		"type": "http", "url": w.URL + "/mcp", "headers": map[string]string{"Authorization": "Bearer " + developer},
	}}})
	if err != nil {
		return err
	}
	p.line("  %s", config)
	p.line("")
	p.line("  Ctrl-C ends it.")
	return nil
}

// demoCurl prints a request of the developer, of one tool where there is one.
func demoCurl(w *world.World, p *paint, method, tool string) {
	header, params := "", ""
	if tool != "" {
		header = " -H 'Mcp-Name: " + tool + "'"
		params = `"name":"` + tool + `","arguments":{},`
	}
	p.line("  curl -s %s/mcp -H \"Authorization: Bearer $DEVELOPER\" -H 'Content-Type: application/json' \\", w.URL)
	p.line("    -H 'Accept: application/json, text/event-stream' -H 'MCP-Protocol-Version: %s' -H 'Mcp-Method: %s'%s \\", world.ModernVersion, method, header)
	p.line("    -d '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":{%s\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"%s\",\"io.modelcontextprotocol/clientCapabilities\":{}}}}'", method, params, world.ModernVersion)
}

// paint writes lines, with colours where they can be seen.
type paint struct {
	w  io.Writer
	on bool
}

func (p *paint) line(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

func (p *paint) bold(s string) string  { return p.colour("1", s) }
func (p *paint) green(s string) string { return p.colour("32", s) }
func (p *paint) red(s string) string   { return p.colour("31", s) }

func (p *paint) colour(code, s string) string {
	if !p.on {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// isTerminal reports whether colours make sense: a terminal, and the user has
// not said no (https://no-color.org).
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
