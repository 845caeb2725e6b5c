//go:build unix

package registry

import (
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/regogate/regogate/e2e/pgserver"
	"github.com/regogate/regogate/registry/strictyaml"
)

// Neither the environment nor the home directory says where the database is, who
// asks it, or how.
func TestPostgresEnvironment(t *testing.T) {
	plain := func() *pgconn.Config {
		t.Helper()
		cfg := PostgresConfig{URL: "postgres://u@127.0.0.1:5433/r"}
		settings, _, err := cfg.connection()
		if err != nil {
			t.Fatal(err)
		}
		return &settings.ConnConfig.Config
	}
	for _, name := range []string{"PGSERVICE", "PGPASSFILE", "PGSERVICEFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	want := plain()
	home := t.TempDir()
	t.Setenv("HOME", home)
	if err := os.WriteFile(filepath.Join(home, ".pgpass"), []byte("*:*:*:*:hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGPASSFILE", filepath.Join(home, ".pgpass"))
	if err := os.Mkdir(filepath.Join(home, ".postgresql"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"root.crt", "postgresql.crt", "postgresql.key"} {
		if err := os.WriteFile(filepath.Join(home, ".postgresql", name), []byte("nonsense"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{
		"PGHOST": "evil.example", "PGPORT": "nonsense", "PGDATABASE": "evil", "PGUSER": "evil", "PGPASSWORD": "hunter2",
		"PGAPPNAME": "evil", "PGCONNECT_TIMEOUT": "nonsense", "PGSSLMODE": "nonsense", "PGSSLKEY": "nonsense", "PGSSLCERT": "nonsense",
		"PGSSLCERTMODE": "require", "PGSSLSNI": "0", "PGSSLROOTCERT": "nonsense", "PGSSLPASSWORD": "hunter2", "PGSSLNEGOTIATION": "direct",
		"PGTARGETSESSIONATTRS": "nonsense", "PGSERVICEFILE": "nonsense", "PGTZ": "Mars", "PGOPTIONS": "-c search_path=evil",
		"PGMINPROTOCOLVERSION": "nonsense", "PGMAXPROTOCOLVERSION": "nonsense", "PGCHANNELBINDING": "nonsense", "PGREQUIREAUTH": "none",
	} {
		t.Setenv(name, value)
	}
	got := plain()
	type settings struct {
		Host, User, Password, Database, SSLNegotiation, SSLCertMode, KerberosSrvName, KerberosSpn string
		MinProtocolVersion, MaxProtocolVersion, ChannelBinding, RequireAuth                       string
		Port                                                                                      uint16
		Timeout                                                                                   time.Duration
		TLS, Fallbacks, Validates                                                                 bool
	}
	of := func(c *pgconn.Config) settings {
		return settings{
			c.Host, c.User, c.Password, c.Database, c.SSLNegotiation, c.SSLCertMode, c.KerberosSrvName, c.KerberosSpn,
			c.MinProtocolVersion, c.MaxProtocolVersion, c.ChannelBinding, c.RequireAuth, c.Port, c.ConnectTimeout,
			c.TLSConfig != nil, len(c.Fallbacks) > 0, c.ValidateConnect != nil,
		}
	}
	if of(got) != of(want) || of(got).Host != "127.0.0.1" || got.Password != "" || !maps.Equal(got.RuntimeParams, map[string]string{"application_name": "regogate"}) {
		t.Errorf("got %+v %v, want %+v", of(got), got.RuntimeParams, of(want))
	}
	t.Setenv("PGSERVICE", "evil")
	_, err := NewPostgres(t.Context(), PostgresConfig{URL: "postgres://u@127.0.0.1:5433/r"}, quiet())
	wantError(t, "a service", err, "connect to PostgreSQL: unset PGSERVICE; only the registry's configuration says where the database is")
}

// TLS is demanded but where nobody else is on the way.
func TestPostgresDemandsTLS(t *testing.T) {
	for url, c := range map[strictyaml.Secret]struct {
		cfg  PostgresConfig
		name string // "" is no TLS
	}{
		"postgres://u@db.example/r":       {PostgresConfig{}, "db.example"},
		"postgres://u@10.0.0.1/r":         {PostgresConfig{}, "10.0.0.1"},
		"postgres://u@localhost.evil/r":   {PostgresConfig{}, "localhost.evil"},
		"postgres://u@db.example:1/r":     {PostgresConfig{InsecurePlaintext: true}, ""},
		"postgres://u@db.example:2/r":     {PostgresConfig{TLS: &TLSConfig{ServerName: "other"}}, "other"},
		"postgres://u@localhost/r":        {PostgresConfig{}, ""},
		"postgres://u@127.0.0.2/r":        {PostgresConfig{}, ""},
		"postgres://u@[::1]/r":            {PostgresConfig{}, ""},
		"postgres://u@localhost:1/r":      {PostgresConfig{TLS: &TLSConfig{}}, "localhost"},
		"postgres://u@/r?host=/run/pg":    {PostgresConfig{}, ""},
		"postgresql://u@[2001:db8::1]/r":  {PostgresConfig{}, "2001:db8::1"},
		"postgres://u:p%40ss@db.example/": {PostgresConfig{}, "error"},
	} {
		c.cfg.URL = url
		settings, _, err := c.cfg.connection()
		if err != nil {
			if c.name != "error" {
				t.Errorf("%s: %v", string(url), err)
			}
			continue
		}
		name := ""
		if conf := settings.ConnConfig.TLSConfig; conf != nil {
			name = conf.ServerName
			if conf.InsecureSkipVerify || len(settings.ConnConfig.Fallbacks) > 0 {
				t.Errorf("%s: weak", string(url))
			}
		}
		if name != c.name {
			t.Errorf("%s: TLS for %q, want %q", string(url), name, c.name)
		}
	}
	bad := PostgresConfig{URL: "postgres://u@a/r", TLS: &TLSConfig{CAFile: filepath.Join(t.TempDir(), "absent.pem")}}
	if _, err := NewPostgres(t.Context(), bad, quiet()); err == nil || !strings.HasPrefix(err.Error(), "prepare TLS for PostgreSQL: ") {
		t.Errorf("error %v", err)
	}
}

func TestPostgresTLS(t *testing.T) {
	server := pgserver.Start(t)
	dir := t.TempDir()
	writeCertificate(t, dir)
	server.Exec("postgres", "create role by_certificate login")
	cfg := postgresConfig(t, server)
	server.Exec("postgres", "grant usage on schema "+cfg.Schema+" to by_certificate", "grant select on all tables in schema "+cfg.Schema+" to by_certificate")
	try := func(user string, conf *TLSConfig) error {
		t.Helper()
		cfg.URL, cfg.TLS = strictyaml.Secret(server.URL(user, "postgres")), conf
		p := openPostgres(t, cfg)
		defer p.Close()
		_, err := p.Head(t.Context())
		return err
	}
	ca := filepath.Join(dir, "cert.pem")
	at := "read the head of the registry: PostgreSQL " + server.Addr + "/postgres "
	wantError(t, "a server without TLS", try("regogate", &TLSConfig{CAFile: ca}),
		at+"cannot be used: "+server.Addr+" (127.0.0.1): tls error: server refused TLS connection")
	for _, name := range []string{"cert.pem", "key.pem"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		server.Write(name, string(data))
	}
	server.Write("pg_hba.conf", "hostssl all by_certificate 127.0.0.1/32 cert\nhostssl all regogate 127.0.0.1/32 trust\n")
	server.Stop()
	server.Args = []string{"-c", "ssl=on", "-c", "ssl_cert_file=cert.pem", "-c", "ssl_key_file=key.pem", "-c", "ssl_ca_file=cert.pem"}
	server.Start()
	for name, c := range map[string]struct {
		user string
		conf *TLSConfig
		want string // "" is well
	}{
		"own root":          {"regogate", &TLSConfig{CAFile: ca}, ""},
		"its name":          {"regogate", &TLSConfig{CAFile: ca, ServerName: "redis.test"}, ""},
		"another name":      {"regogate", &TLSConfig{CAFile: ca, ServerName: "other.test"}, "certificate is valid for redis.test, not other.test"},
		"system roots":      {"regogate", &TLSConfig{}, "certificate signed by unknown authority"},
		"insecure":          {"regogate", &TLSConfig{InsecureSkipVerify: true}, ""},
		"no TLS":            {"regogate", nil, `no pg_hba.conf entry for host "127.0.0.1", user "regogate", database "postgres", no encryption`},
		"own certificate":   {"by_certificate", &TLSConfig{CAFile: ca, CertFile: ca, KeyFile: filepath.Join(dir, "key.pem")}, ""},
		"no certificate":    {"by_certificate", &TLSConfig{CAFile: ca}, "connection requires a valid client certificate"},
		"not its own files": {"by_certificate", &TLSConfig{InsecureSkipVerify: true}, "connection requires a valid client certificate"},
	} {
		err := try(c.user, c.conf)
		if (err == nil) != (c.want == "") || err != nil && (!strings.HasPrefix(err.Error(), at) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every way of not getting at the registry is one line, which says what to do.
func testPostgresErrors(t *testing.T, server *pgserver.Server) {
	cfg := postgresConfig(t, server)
	server.Exec("postgres", "create role known login password 'right'", "create database empty")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	l.Close()
	at := "PostgreSQL " + server.Addr
	const unseen = " may see; run `regogate registry migrate`, or grant what registry/README.md says"
	for name, c := range map[string]struct {
		url, password, schema string
		want                  string
	}{
		"unreachable":       {"postgres://u@" + closed + "/x", "hunter2", "", "PostgreSQL " + closed + "/x cannot be used: " + closed + " (127.0.0.1): dial error: dial tcp " + closed + ": connect: connection refused"},
		"no socket":         {"postgres://u@/x?host=/nowhere", "hunter2", "", "PostgreSQL /nowhere/.s.PGSQL.5432/x cannot be used: /nowhere/.s.PGSQL.5432 (/nowhere): dial error: dial unix /nowhere/.s.PGSQL.5432: connect: no such file or directory"},
		"wrong password":    {server.URL("known", "postgres"), "hunter2", "", at + `/postgres does not let the user known in: password authentication failed for user "known" (SQLSTATE 28P01); look at registry.postgres.url and password, and at pg_hba.conf`},
		"wrong user":        {server.URL("unknown", "postgres"), "hunter2", "", at + `/postgres does not let the user unknown in: password authentication failed for user "unknown" (SQLSTATE 28P01); look at registry.postgres.url and password, and at pg_hba.conf`},
		"no database":       {server.URL("regogate", "absent"), "", "", at + "/absent has no such database; create it, or correct registry.postgres.url"},
		"empty database":    {server.URL("regogate", "empty"), "", "", at + "/empty has no registry in schema " + cfg.Schema + " that the user regogate" + unseen},
		"no schema":         {server.URL("regogate", "postgres"), "", "other", at + "/postgres has no registry in schema other that the user regogate" + unseen},
		"permission denied": {server.URL("known", "postgres"), "right", "", at + "/postgres has no registry in schema " + cfg.Schema + " that the user known" + unseen},
	} {
		cfg := cfg
		cfg.URL, cfg.Password = strictyaml.Secret(c.url), strictyaml.Secret(c.password)
		if c.schema != "" {
			cfg.Schema = c.schema
		}
		p := openPostgres(t, cfg)
		_, err := p.Head(t.Context())
		wantError(t, name, err, "read the head of the registry: "+c.want)
		p.Close()
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the secret is shown", name)
		}
	}
}

// The grants of the documentation are enough, and no more than what they say.
func testPostgresGrants(t *testing.T, server *pgserver.Server) {
	cfg := postgresConfig(t, server)
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, grants, _ := strings.Cut(string(text), "<!-- grants -->\n```sql\n")
	grants, _, found := strings.Cut(grants, "```")
	if !found {
		t.Fatal("README.md has no grants")
	}
	server.Exec("postgres", strings.NewReplacer("regogate.", cfg.Schema+".", "schema regogate", "schema "+cfg.Schema, "database registry", "database postgres").Replace(grants))
	as := func(role, password string) *Postgres {
		c := cfg
		c.URL, c.Password = strictyaml.Secret(server.URL(role, "postgres")), strictyaml.Secret(password)
		return openPostgres(t, c)
	}
	gateway, operator := as("regogate_gateway", "change me"), as("regogate_operator", "change me too")
	by := Author{Name: "x"}
	denied := func(role, doing, what string, err error) {
		t.Helper()
		wantError(t, doing, err, doing+": PostgreSQL "+server.Addr+"/postgres does not allow it to the user "+role+": permission denied for table "+what+" (SQLSTATE 42501); registry/README.md has the grants")
	}
	_, err = gateway.Quarantine(t.Context(), by, Quarantined{Server: "a", Reason: "no"})
	denied("regogate_gateway", "quarantine a", "head", err)
	_, err = gateway.History(t.Context(), HistoryFilter{})
	denied("regogate_gateway", "read the history", "history", err)
	_, err = gateway.Definition(t.Context(), "a", "x", sha)
	denied("regogate_gateway", "read the approved definition of a/x", "definitions", err)
	awaitHint(t, gateway.Changed(), "at the beginning")
	drain(gateway.Changed())
	x := Tool{Server: "a", Name: "x", SHA256: sha}
	if _, err := operator.Replace(t.Context(), by, head(t, operator), small(t, "", x), ReplaceOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitHint(t, gateway.Changed(), "of the change")
	for _, err := range []error{
		errOf(operator.Quarantine(t.Context(), by, Quarantined{Server: "a", Reason: "no"})),
		errOf(operator.Release(t.Context(), by, "a", "")),
		errOf(operator.Approve(t.Context(), by, "a", "x", strings.Repeat("1", 64), []byte("{}"))),
		errOf(operator.Definition(t.Context(), "a", "x", strings.Repeat("1", 64))),
		errOf(operator.History(t.Context(), HistoryFilter{})),
		errOf(operator.Replace(t.Context(), by, head(t, operator), small(t, ""), ReplaceOptions{})),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if c := load(t, gateway); c.Head != head(t, operator) || c.Head.Revision != "5" {
		t.Errorf("head %v", c.Head)
	}
	for _, sql := range []string{"update history set what = 'tool'", "delete from history", "delete from revisions", "update definitions set definition = ''", "delete from head", "update schema_version set version = 0"} {
		_, err := operator.pool.Exec(t.Context(), sql)
		var reply *pgconn.PgError
		if !errors.As(err, &reply) || reply.Code != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	_, _, err = Migrate(t.Context(), PostgresConfig{URL: strictyaml.Secret(server.URL("regogate_operator", "postgres")), Password: "change me too", Schema: "new"})
	wantError(t, "migrate", err, "migrate the registry: PostgreSQL "+server.Addr+"/postgres does not allow it to the user regogate_operator: permission denied for database postgres (SQLSTATE 42501); registry/README.md has the grants")
}

func errOf[T any](_ T, err error) error { return err }

func testMigrate(t *testing.T, server *pgserver.Server) {
	cfg := PostgresConfig{URL: strictyaml.Secret("postgres://regogate@/postgres?host=" + server.Socket + "&port=" + server.Addr[strings.LastIndex(server.Addr, ":")+1:]), Timeout: 10 * time.Second}
	var wg sync.WaitGroup
	made := make(chan int, 8)
	for range cap(made) {
		wg.Go(func() {
			from, to, err := Migrate(t.Context(), cfg)
			if err != nil || to != schemaVersion {
				t.Errorf("to %d, %v", to, err)
			}
			made <- from
		})
	}
	wg.Wait()
	close(made)
	count := map[int]int{}
	for from := range made {
		count[from]++
	}
	if count[0] != 1 || count[schemaVersion] != cap(made)-1 {
		t.Errorf("versions before: %v", count)
	}
	p := openPostgres(t, cfg)
	if _, err := p.Quarantine(t.Context(), Author{Name: "x"}, Quarantined{Server: "a", Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	where := "PostgreSQL " + p.where.String()
	server.Exec("postgres", "update regogate.schema_version set version = 99")
	newer := where + " has version 99 of the registry's tables and this binary knows only 1; use a newer regogate"
	_, err := p.Head(t.Context())
	wantError(t, "newer", err, "read the head of the registry: "+newer)
	_, err = p.Release(t.Context(), Author{Name: "x"}, "a", "")
	wantError(t, "newer", err, "release a: "+newer)
	_, _, err = Migrate(t.Context(), cfg)
	wantError(t, "newer", err, "migrate the registry: "+newer)
	server.Exec("postgres", "update regogate.schema_version set version = 0")
	_, err = p.Head(t.Context())
	wantError(t, "older", err, "read the head of the registry: "+where+" has version 0 of the registry's tables and this binary needs 1; run `regogate registry migrate`")
	// What is there already fails the migration, which then changes nothing.
	_, _, err = Migrate(t.Context(), cfg)
	wantError(t, "half", err, "migrate the registry: "+where+` refuses: relation "head" already exists (SQLSTATE 42P07)`)
	server.Exec("postgres", "update regogate.schema_version set version = 1")
	if c := load(t, p); len(c.Quarantine) != 1 {
		t.Errorf("%+v", c)
	}
}
