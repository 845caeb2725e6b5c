// Command bench measures the gateway beside what it stands before: the same
// requests go straight to a backend, through a bare proxy, through a proxy that
// verifies tokens, and through regogate, in turns, and every answer is checked.
// README.md says what the figures mean.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := bench(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	plan
	tools, json          string
	memory, absent       bool
	cpuProfile, heapFile string
	args                 []string
}

// shortPlan is for a look, or for continuous integration.
var shortPlan = plan{Rounds: 3, Calls: 200, Lists: 6, Concurrency: []int{1, 16}}

func readOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{args: args}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.Rounds, "rounds", 15, "rounds; every entrant runs once in each")
	flags.IntVar(&o.Calls, "n", 400, "calls of one entrant in one round at one concurrency; a twentieth as many lists")
	concurrency := flags.String("concurrency", "1,16,64", "how many clients at once")
	only := flags.String("run", "", "regular expression over operation/concurrency/name: measure only these")
	short := flags.Bool("short", false, "some 20 seconds instead of the flags above")
	flags.StringVar(&o.tools, "tools", "", "directory with real-tools.jsonl (default shared/data beside the repository, synthetic definitions where there is none)")
	flags.StringVar(&o.json, "json", "", "also write everything to this file as JSON")
	flags.BoolVar(&o.memory, "memory", false, "instead, send 100,000 calls and 5,000 lists through the gateway and look at its memory")
	flags.BoolVar(&o.absent, "absent", false, "instead, compare how long names take that are hidden, not registered and not offered")
	flags.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile of what is measured to this file")
	flags.StringVar(&o.heapFile, "memprofile", "", "write a profile of all allocations to this file")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	o.Lists = max(1, o.Calls/20)
	var err error
	if o.Concurrency, err = readNumbers(*concurrency); err != nil {
		return nil, fmt.Errorf("-concurrency %s: %w", *concurrency, err)
	}
	if *short {
		o.plan = shortPlan
	}
	if o.Rounds < 1 || o.Calls < 1 {
		return nil, errors.New("-rounds and -n must be at least 1")
	}
	if *only != "" {
		if o.only, err = regexp.Compile(*only); err != nil {
			return nil, fmt.Errorf("-run: %w", err)
		}
	}
	return o, nil
}

func readNumbers(list string) ([]int, error) {
	var numbers []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 64 {
			return nil, fmt.Errorf("%q is not a number from 1 to 64, which is as many sessions as one principal has", text)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

func bench(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := readOptions(args, stderr)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	dir := o.tools
	if dir == "" {
		dir = beside()
	}
	tools, err := readTools(dir)
	if err != nil {
		return err
	}
	if o.tools != "" && tools.real == 0 {
		return fmt.Errorf("-tools %s: no real-tools.jsonl with definitions of the catalogue's tools there", o.tools)
	}
	f, err := startField(ctx, tools)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	r := &report{Machine: thisMachine(args), Plan: o.plan, Tools: tools.String(), Asked: f.ask.String()}
	if err := f.measure(ctx, o, r, log); err != nil {
		return err
	}
	if o.json != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(text, '\n'), 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return errors.Join(r.write(stdout), r.clean())
}

// measure fills in the report.
func (f *field) measure(ctx context.Context, o *options, r *report, log *slog.Logger) error {
	if o.memory {
		return profiled(o, func() (err error) {
			r.Memory, err = f.soak(ctx, []int{10_000, 50_000, 100_000}, log)
			return err
		})
	}
	if o.absent {
		return profiled(o, func() (err error) {
			r.Absence, err = compare(ctx, o.Calls*o.Rounds)
			return err
		})
	}
	entrants, err := f.entrants(ctx, slices.Max(o.Concurrency))
	if err != nil {
		return err
	}
	contests := o.contests(entrants)
	if len(contests) == 0 {
		return errors.New("-run: nothing has such a name")
	}
	if err := o.warm(ctx, contests); err != nil {
		return err
	}
	if err := profiled(o, func() error { return o.race(ctx, contests, log) }); err != nil {
		return err
	}
	r.Rows = rows(contests)
	return nil
}

// profiled runs f under the profiles that are wanted.
func profiled(o *options, f func() error) error {
	if o.cpuProfile != "" {
		out, err := os.Create(o.cpuProfile)
		if err != nil {
			return fmt.Errorf("-cpuprofile: %w", err)
		}
		defer out.Close()
		if err := pprof.StartCPUProfile(out); err != nil {
			return fmt.Errorf("-cpuprofile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	if err := f(); err != nil || o.heapFile == "" {
		return err
	}
	out, err := os.Create(o.heapFile)
	if err != nil {
		return fmt.Errorf("-memprofile: %w", err)
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(out, 0), out.Close())
}

// beside returns the directory shared/data beside the repository.
func beside() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return ""
	}
	return filepath.Join(filepath.Dir(file), "..", "..", "..", "shared", "data")
}
