package reload_test

import (
	"strings"
	"time"

	"github.com/regogate/regogate/e2e/depot"
)

// wrong is one way in which a publication is not to come into force.
type wrong struct {
	name string
	make func(r *rig, p depot.Publication) depot.Publication
	// reason is an expression that the problem told matches; "" where nothing is
	// wrong that could be told.
	reason string
	// down takes the server away for so long.
	down bool
}

const authz = "mcp/authz/authz.rego"

// bad is the number of what a wrong publication would show, were it ever in
// force: none that a good one has.
func bad(revision int) int { return revision + 128 }

// sending are the ways in which the server or the network goes wrong.
func sending() []wrong {
	fault := func(name, reason string) wrong {
		return wrong{name: name, reason: reason, make: func(_ *rig, p depot.Publication) depot.Publication {
			p.Fault = name
			return p
		}}
	}
	return []wrong{
		fault(depot.Unmodified, ""),
		fault(depot.UnmodifiedBody, ""),
		fault(depot.Empty, `empty`),
		fault(depot.Cut, `cut off`),
		fault(depot.Short, `ends after \d+ bytes`),
		fault(depot.Drip, ""),
		fault(depot.Hang, ""),
		fault(depot.Reset, `reset by peer|EOF`),
		fault("status 401", `Unauthorized|401`),
		fault("status 403", `Forbidden|403`),
		fault("status 404", `Not Found|404`),
		fault("status 500", `Internal Server Error|500`),
		fault("status 503", `Service Unavailable|503`),
		fault("redirect http://169.254.169.254/latest/meta-data/", `redirects to http://169\.254\.169\.254`),
		{"a redirect to another host", func(r *rig, p depot.Publication) depot.Publication {
			p.Fault = "redirect " + r.trap.url + "/bundles/main"
			return p
		}, `redirects to `, false},
		{"a login page", func(_ *rig, _ depot.Publication) depot.Publication {
			return depot.Publication{Raw: "<html><body>Log in</body></html>", Type: "text/html"}
		}, `no bundle.*text/html`, false},
		{"connections are refused", func(_ *rig, p depot.Publication) depot.Publication { return p }, `connection refused`, true},
	}
}

// archives are bundles that are no clean archives, or too large ones.
func archives() []wrong {
	entry := func(name string, e depot.Entry, reason string) wrong {
		return wrong{name: name, reason: reason, make: func(_ *rig, p depot.Publication) depot.Publication {
			p.Entries = []depot.Entry{e}
			return p
		}}
	}
	return []wrong{
		entry("a path that leads out", depot.Entry{Name: "../../etc/x", Text: "{}"}, `leads out`),
		entry("a path that leads out further in", depot.Entry{Name: "/mcp/../../../etc/x", Text: "{}"}, `leads out`),
		entry("two slashes", depot.Entry{Name: "//etc/x", Text: "{}"}, `leads out`),
		entry("an absolute path", depot.Entry{Name: "/etc/x.rego", Text: "package mcp.x"}, `not included in bundle signature`),
		entry("a symlink", depot.Entry{Name: "/mcp/x.rego", Type: "symlink", To: "/etc/passwd"}, `link or a device`),
		entry("a hard link", depot.Entry{Name: "/mcp/x.rego", Type: "link", To: "/mcp/authz/authz.rego"}, `link or a device`),
		entry("a device", depot.Entry{Name: "/mcp/x.rego", Type: "device"}, `link or a device`),
		{"100000 files", func(_ *rig, p depot.Publication) depot.Publication {
			p.Many = 100_000
			return p
		}, `more than \d+ entries`, false},
		{"20 GiB out of 20 MB", func(_ *rig, p depot.Publication) depot.Publication {
			p.Bomb = 20 << 30
			return p
		}, `unpacks to more than`, false},
		{"one huge file", func(_ *rig, p depot.Publication) depot.Publication {
			p.Bomb = 96 << 20
			return p
		}, `exceed`, false},
	}
}

// signatures are bundles whose signature does not prove where they are from.
func signatures() []wrong {
	sign := func(name string, s *depot.Signature, reason string) wrong {
		return wrong{name: name, reason: reason, make: func(_ *rig, p depot.Publication) depot.Publication {
			p.Sign = s
			return p
		}}
	}
	return []wrong{
		sign("no signature", nil, `missing .signatures.json`),
		sign("a key that is not trusted", &depot.Signature{Key: "stranger"}, `stranger`),
		sign("another key under a trusted name", &depot.Signature{Key: "stranger", KeyID: "new"}, `verify JWT signature`),
		sign("alg none", &depot.Signature{Key: "new", Alg: "none"}, `verify JWT signature`),
		sign("a changed file", &depot.Signature{Key: "new", Change: map[string]string{authz: module(1)}}, `digest mismatch`),
		sign("an extra file", &depot.Signature{Key: "new", Add: map[string]string{"mcp/x.rego": "package mcp.x"}}, `not included in bundle signature`),
		sign("a file that no signature lists", &depot.Signature{Key: "new", Without: []string{authz}}, `not included in bundle signature`),
		sign("an expired signature", &depot.Signature{Key: "new", Expires: -time.Hour}, `expired`),
		sign("a file that is only listed", &depot.Signature{Key: "new", Beside: []string{"mcp/more.rego"}}, `not found in the bundle|but not found`),
	}
}

// policies are bundles that arrive well and hold what is no policy.
func policies() []wrong {
	rego := func(name, reason string, edit func(string) string) wrong {
		return wrong{name: name, reason: reason, make: func(_ *rig, p depot.Publication) depot.Publication {
			p.Files[authz] = edit(p.Files[authz])
			return p
		}}
	}
	more := func(name, reason, text string) wrong {
		return rego(name, reason, func(m string) string { return m + "\n" + text + "\n" })
	}
	file := func(name, reason, path, text string) wrong {
		return wrong{name: name, reason: reason, make: func(_ *rig, p depot.Publication) depot.Publication {
			p.Files[path] = text
			return p
		}}
	}
	v0 := 0
	return []wrong{
		rego("a syntax error", `authz\.rego:\d+.*`, func(m string) string { return strings.Replace(m, "default allow := false", "default allow :=", 1) }),
		more("rules of Rego v0", `if`, "extra { input.x }"),
		{"Rego v0 by its manifest", func(_ *rig, p depot.Publication) depot.Publication {
			p.RegoVersion = &v0
			p.Files[authz] = "package mcp.authz\n\nallow { input.claims.group }\n"
			return p
		}, `if`, false},
		more("recursion", `recursive`, "one := two\n\ntwo := one"),
		more("an unsafe variable", `unsafe`, "extra if x > 1"),
		more("an unknown function", `undefined function nothing\.like_it`, "extra := nothing.like_it(1)"),
		more("http.send", `http\.send`, `extra := http.send({"method": "get", "url": "http://169.254.169.254/"})`),
		more("opa.runtime", `opa\.runtime`, "extra := opa.runtime().env"),
		more("net.lookup_ip_addr", `net\.lookup_ip_addr`, `extra := net.lookup_ip_addr("example.com")`),
		rego("no rule allow", `no rule allow`, func(string) string { return "package mcp.authz\n\nother := true\n" }),
		file("a base document where the policy is", `mcp\.authz|conflict`, "mcp/authz/data.json", `{"allow": true}`),
		{"a base document where the policy is not", func(_ *rig, p depot.Publication) depot.Publication {
			p.Files = map[string]string{"data.json": `{"mcp": {"authz": {"allow": true, "call": true}}}`}
			return p
		}, `mcp\.authz|authz`, false},
		{"a module outside mcp", func(_ *rig, p depot.Publication) depot.Publication {
			p.Roots = []string{""}
			p.Files["other.rego"] = "package other\n\nx := 1\n"
			return p
		}, `outside mcp`, false},
		file("a module outside the roots", `roots|not owned`, "other.rego", "package other\n\nx := 1\n"),
		{"overlapping roots", func(_ *rig, p depot.Publication) depot.Publication {
			p.Roots = []string{"mcp", "mcp/authz"}
			return p
		}, `overlap`, false},
		{"an empty bundle", func(_ *rig, p depot.Publication) depot.Publication {
			p.Files = map[string]string{}
			return p
		}, `no rule allow`, false},
		file("data that is not JSON", `data\.json|did not find expected node content`, "mcp/x/data.json", `{"a": `),
		file("a module that is not UTF-8", `UTF-8|illegal|invalid`, "mcp/x.rego", "package mcp.x\n\nx := \"\xff\"\n"),
		file("a delta", `delta`, "patch.json", `{"data": [{"op": "upsert", "path": "/mcp/number", "value": 3}]}`),
		{"a manifest that is not JSON", func(_ *rig, p depot.Publication) depot.Publication {
			p.Manifest = `{"revision": `
			return p
		}, `manifest|EOF|did not find expected`, false},
	}
}
