package draft

import (
	"encoding/pem"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regogate/regogate/gateway"
	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/gateway/policy"
	"github.com/regogate/regogate/policies"
)

var (
	// shownSetting is a line that shows a default.
	shownSetting = regexp.MustCompile(`(?m)^( *)#([^ #])`)
	// anySetting is one that shows a default or an example.
	anySetting = regexp.MustCompile(`^( *)##?([^ #])`)
	// exampleServers is what can be set for a server.
	exampleServers = regexp.MustCompile(`(?m)^#   web:.*\n(?:^#\n|^#   .*\n)+`)
)

// TestTheConfigurationTellsTheDefaults reads the configuration as it is written
// and with every default that it shows: both must mean the same.
func TestTheConfigurationTellsTheDefaults(t *testing.T) {
	for _, withKey := range []bool{false, true} {
		text, err := configYAML(withKey, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		written := loadText(t, string(text))
		shown := loadText(t, shownSetting.ReplaceAllString(string(text), "$1$2"))
		issuer := &written.Auth.Issuers[0]
		skew := auth.DefaultClockSkew
		issuer.Algorithms, issuer.ClockSkew, issuer.MaxStaleness = []string{"RS256", "ES256", "EdDSA"}, &skew, auth.DefaultMaxStaleness
		issuer.RefreshInterval = auth.DefaultRefreshInterval
		if withKey {
			issuer.RefreshInterval = auth.DefaultFileRefreshInterval
		}
		written.Policy.Deadline, written.Policy.ListDeadline = policy.DefaultDeadline, policy.DefaultListDeadline
		written.Policy.InsecureBuiltins = []string{}
		written.Policy.Check, written.Policy.Cache.Entries = policy.CheckRefuse, policy.DefaultCacheEntries
		written.Registry.MaxStaleness = 30 * time.Second
		written.AllowedHosts, written.AllowedOrigins, written.TrustedProxies = []string{}, []string{}, []string{}
		if !reflect.DeepEqual(written, shown) {
			t.Errorf("with a key %v: without a setting it is\n%+v\nand with all that are shown\n%+v", withKey, written, shown)
		}
	}
}

// TestEverySettingCanBeSetAlone takes the marks from one line at a time.
func TestEverySettingCanBeSetAlone(t *testing.T) {
	for _, withKey := range []bool{false, true} {
		text, err := configYAML(withKey, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		seen := 0
		for i, line := range lines {
			if !anySetting.MatchString(line) {
				continue
			}
			seen++
			changed := slices.Clone(lines)
			changed[i] = anySetting.ReplaceAllString(line, "$1$2")
			loadText(t, strings.Join(changed, "\n"))
		}
		if seen < 27 {
			t.Errorf("with a key %v: %d lines show a setting: looked for something else", withKey, seen)
		}
	}
}

// TestTheExampleServersAreRight puts them in the place of none.
func TestTheExampleServersAreRight(t *testing.T) {
	text, err := configYAML(false, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	block := exampleServers.FindString(string(text))
	servers := "servers:\n" + regexp.MustCompile(`(?m)^# ?`).ReplaceAllString(block, "")
	c := loadText(t, strings.Replace(string(text), "servers: {}\n", servers, 1))
	if web := c.Servers["web"]; len(c.Servers) != 2 || web.Headers["Authorization"] != "Bearer x" || web.TLS.CAFile == "" {
		t.Errorf("of\n%s\nthe servers are %+v", servers, c.Servers)
	}
	if local := c.Servers["local"]; local.Command != "npx" || local.Env["TOKEN"] != "x" || local.MaxSessions != 128 {
		t.Errorf("of\n%s\nlocal is %+v", servers, local)
	}
}

// loadText reads a configuration beside which there are certificates, with x in
// every environment variable.
func loadText(t *testing.T, text string) *gateway.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), ConfigName)
	certificates := httptest.NewTLSServer(nil)
	certificates.Close()
	block := &pem.Block{Type: "CERTIFICATE", Bytes: certificates.Certificate().Raw}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "ca.pem"), pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, problems := gateway.Load(path, func(string) (string, bool) { return "x", true }, nil)
	if len(problems) > 0 {
		t.Fatalf("%v in\n%s", problems, text)
	}
	for _, p := range []*string{&c.Registry.Path, &c.Policy.Dir, &c.DecisionLog.File, &c.Auth.Issuers[0].JWKSFile} {
		*p = strings.TrimPrefix(*p, filepath.Dir(path)) // differs from one test directory to the other
	}
	return c
}

// TestTheConfigurationNamesEverySetting keeps the written file complete when a
// setting is added.
func TestTheConfigurationNamesEverySetting(t *testing.T) {
	text, err := configYAML(false, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Of what is for few, the documentation tells.
	elsewhere := []string{"addrs", "sentinel", "master", "username", "password", "db", "prefix", "timeout", "cert_file", "key_file",
		"server_name", "insecure_skip_verify", "insecure_hmac_secret_file", "insecure_jwks_http",
		"insecure_plaintext", "schema", "algorithm", "auth_method", "private_key_file", "key_id", "scopes", "subject_issuer", "insecure_token_http"}
	seen := 0
	for _, name := range settingsOf(reflect.TypeFor[gateway.Config]()) {
		seen++
		if !regexp.MustCompile(`\b`+name+`\b`).Match(text) && !strings.Contains(" "+strings.Join(elsewhere, " ")+" ", " "+name+" ") {
			t.Errorf("%s is not in the configuration that init writes", name)
		}
	}
	if seen < 60 {
		t.Fatalf("found %d settings: looked in the wrong place", seen)
	}
}

func settingsOf(of reflect.Type) (names []string) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return settingsOf(of.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	for i := range of.NumField() {
		name, option, _ := strings.Cut(of.Field(i).Tag.Get("yaml"), ",")
		if name == "-" || name == "" && option == "" {
			continue
		}
		if name != "" {
			names = append(names, name)
		}
		names = append(names, settingsOf(of.Field(i).Type)...)
	}
	return names
}

// TestAllPoliciesAreCopied: tests and data, byte for byte.
func TestAllPoliciesAreCopied(t *testing.T) {
	dir := t.TempDir()
	s := &Starter{Dir: dir, Out: &strings.Builder{}}
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	copied := 0
	err := fs.WalkDir(policies.FS, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		copied++
		want, err := fs.ReadFile(policies.FS, name)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(dir, PoliciesName, filepath.FromSlash(name)))
		if err == nil && string(got) != string(want) {
			err = fmt.Errorf("%s is another one than the shipped", name)
		}
		return err
	})
	if err != nil || copied < 5 {
		t.Fatalf("%d policy files: %v", copied, err)
	}
	if problems := policy.Check(policy.Config{Dir: filepath.Join(dir, PoliciesName)}); len(problems) > 0 {
		t.Error(problems)
	}
	if _, err := policy.New(policy.Config{Dir: filepath.Join(dir, PoliciesName)}, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}
