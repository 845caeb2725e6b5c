package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/catalogue"
)

// definition is one tool as a server declares it. Everything that is not a
// text stays decoded, as a server holds it, and is encoded for each answer.
type definition struct {
	Server string `json:"-"`

	Name         string         `json:"name"`
	Title        string         `json:"title,omitempty"`
	Description  string         `json:"description,omitempty"`
	InputSchema  map[string]any `json:"inputSchema"`
	OutputSchema map[string]any `json:"outputSchema,omitempty"`
	Annotations  map[string]any `json:"annotations,omitempty"`
	Meta         map[string]any `json:"_meta,omitempty"`
}

// toolset is the tools that the backends offer: the shipped catalogue's, with
// real definitions where these are at hand and synthetic ones elsewhere.
type toolset struct {
	entries     []registry.Tool // sorted by server, then name
	definitions []definition    // of the entries
	sizes       []int           // bytes of each, encoded
	real        int             // how many definitions are real
}

// readTools reads the catalogue and joins it with the definitions of
// real-tools.jsonl in dir. A directory without that file means synthetic
// definitions; a file that cannot be read is an error.
func readTools(dir string) (*toolset, error) {
	entries, err := catalogueTools()
	if err != nil {
		return nil, err
	}
	known, err := readDefinitions(filepath.Join(dir, "real-tools.jsonl"))
	if err != nil {
		return nil, err
	}
	t := &toolset{entries: entries}
	wanted := syntheticSizes(len(entries))
	for i, e := range entries {
		d, ok := known[e.Server+"."+e.Name]
		if ok {
			t.real++
		} else {
			d = synthetic(e, wanted[i])
		}
		encoded, err := json.Marshal(d)
		if err != nil {
			return nil, fmt.Errorf("encode the definition of %s of server %s: %w", e.Name, e.Server, err)
		}
		t.definitions = append(t.definitions, d)
		t.sizes = append(t.sizes, len(encoded))
	}
	return t, nil
}

func catalogueTools() ([]registry.Tool, error) {
	source, err := registry.OpenFS(catalogue.FS, "catalogue", slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer source.Close()
	c, err := source.Load(context.Background(), registry.Head{})
	if err != nil {
		return nil, err
	}
	tools := slices.Clone(c.Tools)
	slices.SortFunc(tools, func(a, b registry.Tool) int {
		return strings.Compare(a.Server+"\x00"+a.Name, b.Server+"\x00"+b.Name)
	})
	return tools, nil
}

// readDefinitions returns the definitions in the file by server.tool, none
// where there is no file. Those of which only the name is known are left out.
func readDefinitions(path string) (map[string]definition, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read real definitions: %w", err)
	}
	known := map[string]definition{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Server string `json:"server"`
			definition
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if line.InputSchema == nil {
			continue
		}
		line.definition.Server = line.Server
		known[line.Server+"."+line.Name] = line.definition
	}
	return known, lines.Err()
}

// The sizes of real definitions are close to a log-normal distribution of this
// median and mean, in bytes.
const (
	medianSize = 1100
	meanSize   = 1900
)

// syntheticSizes returns n sizes of that distribution, in an order that is the
// same every time.
func syntheticSizes(n int) []int {
	spread := math.Sqrt(2 * math.Log(float64(meanSize)/medianSize))
	sizes := make([]int, n)
	for i := range sizes {
		quantile := (float64(i) + 0.5) / float64(n)
		sizes[i] = int(medianSize * math.Exp(spread*math.Sqrt2*math.Erfinv(2*quantile-1)))
	}
	rand.New(rand.NewPCG(507, 24)).Shuffle(n, func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	return sizes
}

// synthetic makes a definition of about that many bytes: more and more
// parameters with a sentence each.
func synthetic(e registry.Tool, size int) definition {
	const about = "What this parameter means, in which form it is wanted and what happens where it is left out."
	properties := map[string]any{}
	d := definition{
		Server: e.Server, Name: e.Name, Description: e.Description,
		InputSchema: map[string]any{"type": "object", "properties": properties},
		Annotations: map[string]any{"openWorldHint": true},
	}
	have := 130 + len(e.Name) + len(e.Description)
	for i := 1; have < size; i++ {
		text := about[:max(0, min(len(about), size-have-50))]
		properties[fmt.Sprintf("parameter_%02d", i)] = map[string]any{"type": "string", "description": text}
		have += 54 + len(text)
	}
	return d
}

// byServer returns the definitions of each server, in their order.
func (t *toolset) byServer() map[string][]definition {
	of := map[string][]definition{}
	for i, d := range t.definitions {
		of[t.entries[i].Server] = append(of[t.entries[i].Server], d)
	}
	return of
}

func (t *toolset) String() string {
	sorted := slices.Sorted(slices.Values(t.sizes))
	total := 0
	for _, s := range sorted {
		total += s
	}
	kind := fmt.Sprintf("%d real and %d synthetic definitions", t.real, len(sorted)-t.real)
	return fmt.Sprintf("%d tools of %d servers, %s, median %d B, mean %d B, together %d kB",
		len(sorted), len(t.byServer()), kind, sorted[len(sorted)/2], total/len(sorted), total/1000)
}
