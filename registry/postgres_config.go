package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/regogate/regogate/registry/strictyaml"
)

// PostgresConfig says how to reach the PostgreSQL that holds the registry. Nothing
// else does: neither PG… variables of the environment nor files in the home
// directory.
type PostgresConfig struct {
	// URL is postgres://user[:password]@host[:port]/database, or, for a unix
	// socket, postgres://user[:password]@/database?host=/DIRECTORY[&port=PORT].
	URL strictyaml.Secret `yaml:"url"`
	// Password is the user's, instead of one in URL.
	Password strictyaml.Secret `yaml:"password"`
	// TLS of the connection. Nil checks the server against the system's roots,
	// but over loopback, where nil is no TLS.
	TLS *TLSConfig `yaml:"tls"`
	// InsecurePlaintext does without TLS on the way to another machine.
	InsecurePlaintext bool `yaml:"insecure_plaintext"`
	// Schema holds all tables; empty means regogate.
	Schema string `yaml:"schema"`
	// Timeout bounds a question, connecting included; 0 means 2 s. Loads and
	// changes, which are several, have ten times that.
	Timeout time.Duration `yaml:"timeout"`
}

const (
	defaultSchema          = "regogate"
	maxSchema              = 48
	defaultPostgresTimeout = 2 * time.Second
	minPostgresTimeout     = 50 * time.Millisecond
	maxPostgresTimeout     = 30 * time.Second
	many                   = 10 // timeouts of what takes several questions
	maxConnections         = 4
)

// postgresURL is what PostgresConfig.URL says.
type postgresURL struct {
	host                     string // name or address, or the directory of a unix socket
	port                     uint16
	user, password, database string
}

func (u *postgresURL) unix() bool { return strings.HasPrefix(u.host, "/") }

// local reports whether nobody else is on the way.
func (u *postgresURL) local() bool {
	return u.unix() || u.host == "localhost" || net.ParseIP(u.host).IsLoopback()
}

// String names the database for people.
func (u *postgresURL) String() string {
	_, address := pgconn.NetworkAddress(u.host, u.port)
	return address + "/" + u.database
}

// Validate returns every problem, with paths that begin with the given one.
func (c *PostgresConfig) Validate(path string) []strictyaml.Problem {
	v := checker{path: path}
	u, err := parsePostgresURL(string(c.URL))
	switch {
	case c.URL == "":
		v.problem("url", "is missing; %s", postgresURLForm)
	case err != nil:
		v.problem("url", "%v", err)
	default:
		c.checkBesideURL(u, &v)
	}
	if c.Schema != "" && (len(c.Schema) > maxSchema || strings.Trim(c.Schema, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" ||
		strings.Trim(c.Schema[:1], "0123456789") == "" || strings.HasPrefix(c.Schema, "pg_")) {
		v.problem("schema", "want at most %d of a-z 0-9 _, neither beginning with a digit nor with pg_", maxSchema)
	}
	if c.Timeout != 0 && (c.Timeout < minPostgresTimeout || c.Timeout > maxPostgresTimeout) {
		v.problem("timeout", "want %s to %s", minPostgresTimeout, maxPostgresTimeout)
	}
	if c.TLS != nil && (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		v.problem("tls.cert_file", "want cert_file and key_file, or neither")
	}
	return v.problems
}

func (c *PostgresConfig) checkBesideURL(u *postgresURL, v *checker) {
	if c.Password != "" && u.password != "" {
		v.problem("password", "want it here or in url, not both")
	}
	if strings.ContainsRune(string(c.Password), 0) {
		v.problem("password", "contains a zero byte")
	}
	switch {
	case c.TLS != nil && u.unix():
		v.problem("tls", "has no effect on a unix socket")
	case c.TLS != nil && c.InsecurePlaintext:
		v.problem("insecure_plaintext", "want tls or insecure_plaintext, not both")
	case c.InsecurePlaintext && u.local():
		v.problem("insecure_plaintext", "has no effect on a unix socket or over loopback, where there is no TLS without tls")
	}
}

const postgresURLForm = "want postgres://user[:password]@host[:port]/database, or postgres://user@/database?host=/DIRECTORY for a unix socket"

// parsePostgresURL reads what PostgresConfig.URL describes. Its errors never
// repeat the URL, which may hold a password.
func parsePostgresURL(text string) (*postgresURL, error) {
	form := errors.New(postgresURLForm)
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.User == nil || u.ForceQuery || u.Fragment != "" || u.Opaque != "" {
		return nil, form
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, form
	}
	for name, values := range query {
		if strings.HasPrefix(name, "ssl") {
			return nil, errors.New("says how to use TLS; that is set in tls beside it")
		}
		if name != "host" && name != "port" || len(values) != 1 || u.Host != "" {
			return nil, fmt.Errorf("has a parameter that is not understood; %w", form)
		}
	}
	to := &postgresURL{host: u.Hostname(), user: u.User.Username(), database: strings.TrimPrefix(u.Path, "/")}
	to.password, _ = u.User.Password()
	port := u.Port()
	if u.Host == "" {
		if to.host, port = query.Get("host"), query.Get("port"); !path.IsAbs(to.host) {
			return nil, form
		}
	}
	if port == "" {
		port = "5432"
	}
	if u.Host != "" && strings.ContainsAny(to.host, ",/") {
		return nil, form // several hosts, or what is no name
	}
	if to.host == "" || to.user == "" || to.database == "" || !validPort(port) || strings.Contains(to.database, "/") ||
		strings.ContainsRune(to.host+to.user+to.password+to.database, 0) || strings.ContainsFunc(to.host+to.database+to.user, notShown) {
		return nil, form
	}
	n, _ := strconv.ParseUint(port, 10, 16)
	to.port = uint16(n)
	return to, nil
}

func (c *PostgresConfig) source() string {
	u, err := parsePostgresURL(string(c.URL))
	if err != nil {
		return "PostgreSQL"
	}
	return fmt.Sprintf("PostgreSQL %s, schema %s", u, c.schema())
}

func (c *PostgresConfig) schema() string {
	if c.Schema == "" {
		return defaultSchema
	}
	return c.Schema
}

func (c *PostgresConfig) timeout() time.Duration {
	if c.Timeout == 0 {
		return defaultPostgresTimeout
	}
	return c.Timeout
}

// connection returns the settings of the library for a configuration that passed
// Validate, and what to call the database.
func (c *PostgresConfig) connection() (*pgxpool.Config, *postgresURL, error) {
	u, err := parsePostgresURL(string(c.URL))
	if err != nil {
		return nil, nil, fmt.Errorf("read the PostgreSQL url: it %w", err)
	}
	// The library's parser takes what is not said here from the environment and the
	// home directory. What it cannot be told to leave alone is a service.
	if os.Getenv("PGSERVICE") != "" {
		return nil, nil, errors.New("connect to PostgreSQL: unset PGSERVICE; only the registry's configuration says where the database is")
	}
	cfg, err := pgxpool.ParseConfig("host=/ port=1 user=x password=x dbname=x passfile='' sslmode=disable sslcertmode=allow connect_timeout=0 " +
		"target_session_attrs=any min_protocol_version=3.0 max_protocol_version=3.0 channel_binding=prefer require_auth=''")
	if err != nil {
		return nil, nil, fmt.Errorf("prepare the connection to PostgreSQL: %w", err)
	}
	to := &cfg.ConnConfig.Config
	to.Host, to.Port, to.User, to.Password, to.Database = u.host, u.port, u.user, u.password, u.database
	if c.Password != "" {
		to.Password = string(c.Password)
	}
	to.Fallbacks, to.RuntimeParams, to.SSLNegotiation = nil, map[string]string{"application_name": "regogate"}, ""
	if to.TLSConfig, err = c.tls(u); err != nil {
		return nil, nil, fmt.Errorf("prepare TLS for PostgreSQL: %w", err)
	}
	c.bound(to)
	cfg.MaxConns = maxConnections
	// A connection that was cut is found out before a question is put to it.
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
	return cfg, u, nil
}

func (c *PostgresConfig) tls(u *postgresURL) (*tls.Config, error) {
	if u.unix() || c.TLS == nil && (c.InsecurePlaintext || u.local()) {
		return nil, nil
	}
	conf := &tls.Config{ServerName: u.host, MinVersion: tls.VersionTLS12}
	if c.TLS == nil {
		return conf, nil
	}
	return conf, c.TLS.apply(conf)
}

// bound makes the library's patience that of the configuration. A call ends with
// its context, but what it leaves behind would hold a connection for 15 s.
func (c *PostgresConfig) bound(to *pgconn.Config) {
	limit := c.timeout()
	to.ConnectTimeout = limit
	to.MaxProtocolMessageBodyLen = maxCatalogue
	to.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: limit, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: pingEvery, Interval: pingEvery, Count: 3}}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		// For the request to cancel a statement, which has a connection of its own.
		_ = conn.SetDeadline(time.Now().Add(limit))
		return hasty{conn, limit}, nil
	}
	to.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
		return conn, conn.SetDeadline(time.Time{})
	}
	to.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		const settings = "select set_config('search_path', $1, false), set_config('statement_timeout', $2, false), " +
			"set_config('idle_in_transaction_session_timeout', $2, false)"
		patience := strconv.FormatInt((many * limit).Milliseconds(), 10)
		return conn.ExecParams(ctx, settings, [][]byte{[]byte(c.schema()), []byte(patience)}, nil, nil, nil).Read().Err
	}
}

// hasty is a connection on which no deadline is further away than the limit. The
// library sets one only to end what was given up.
type hasty struct {
	net.Conn
	limit time.Duration
}

func (h hasty) SetDeadline(t time.Time) error {
	if most := time.Now().Add(h.limit); t.After(most) {
		t = most
	}
	return h.Conn.SetDeadline(t)
}
