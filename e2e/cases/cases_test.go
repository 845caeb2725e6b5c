package cases

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(DoubleEnv); file != "" {
		if err := Double(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	// Cases wait more than they work.
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", "6"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// mustBeThere lists the cases that have to have a file: one that got lost would
// otherwise pass.
var mustBeThere = []string{
	"B001", "B002", "B004", "B005", "B007", "B009", "B010", "B012", "B013", "B014", "B015", "B017",
	"B019", "B020", "B022", "B023", "B025", "B026", "B027", "B028", "B029", "B032", "B034", "B037",
	"B038", "B039", "B041", "B042", "B043", "B044", "B045", "B046", "B047", "B048", "B049", "B051",
	"B053", "B054", "B056", "B057", "B058", "B060", "B061", "B062", "B064", "B065", "B066", "B067",
	"B068", "B070", "B072", "B073", "B075", "B076", "B077", "B078", "B079", "B081", "B083", "B084",
	"B085", "B087", "B088", "B090", "B093", "B102", "B103", "B104", "B105", "B108", "B110", "B112",
}

func TestCases(t *testing.T) {
	all, err := Load(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	env := Env{Keys: &Keyring{}, Binary: os.Getenv("REGOGATE_BIN")}
	for _, c := range all {
		found[c.ID] = true
		t.Run(c.ID, func(t *testing.T) {
			if !c.Serial {
				t.Parallel()
			}
			own := env
			own.Dir = func() (string, error) { return os.MkdirTemp(t.TempDir(), "") }
			for _, problem := range c.Run(t.Context(), own) {
				t.Error(problem)
			}
			if t.Failed() {
				t.Logf("%s: %s\nsource: %s\nright: %s", c.ID, c.Title, c.Source, c.Expectation)
			}
		})
	}
	for _, id := range mustBeThere {
		if !found[id] {
			t.Errorf("testdata/%s.yaml is missing", id)
		}
	}
}
