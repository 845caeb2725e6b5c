package plane

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

type kind int

const (
	text kind = iota
	flag
	whole // a whole number
	number
	texts   // a list of texts
	textMap // names to texts
	free    // OPA reads it; anything goes below
	object  // members
	named   // freely named objects, each with members
)

// shape says what a part of OPA's configuration may hold here.
type shape struct {
	kind    kind
	members map[string]shape
	// refused holds members that OPA knows and that have no meaning here, each
	// with what to do instead.
	refused map[string]string
}

const notHere = "has no meaning here: remove it"

var pollingShape = shape{kind: object, members: map[string]shape{
	"min_delay_seconds": {kind: whole}, "max_delay_seconds": {kind: whole}, "long_polling_timeout_seconds": {kind: whole},
}, refused: map[string]string{"superseded_etag_ttl_seconds": "has no meaning here: the bundle in force is the only one asked about; remove it"}}

var signingShape = shape{kind: object, members: map[string]shape{
	"keyid": {}, "scope": {},
}, refused: map[string]string{
	"exclude_files":                "would let unsigned files in: remove it and sign every file",
	"allow_unsigned_delta_bundles": "delta bundles are not taken: remove it",
	"PublicKeys":                   "belongs below keys",
}}

var credentialShape = shape{kind: object, members: map[string]shape{
	"bearer": {kind: object, members: map[string]shape{"token": {}, "token_path": {}, "scheme": {}}},
	"client_tls": {kind: object, members: map[string]shape{
		"cert": {}, "private_key": {}, "private_key_passphrase": {}, "ca_cert": {}, "system_ca_required": {kind: flag}, "cert_reread_interval_seconds": {kind: whole},
	}},
	"oauth2": {kind: object, members: map[string]shape{
		"grant_type": {}, "token_url": {}, "client_id": {}, "client_secret": {}, "signing_key": {}, "thumbprint": {},
		"additional_claims": {kind: free}, "include_jti_claim": {kind: flag}, "scopes": {kind: texts}, "additional_headers": {kind: textMap},
		"additional_parameters": {kind: textMap}, "aws_kms": {kind: free}, "aws_signing": {kind: free}, "azure_keyvault": {kind: free},
		"azure_signing": {kind: free}, "client_assertion_type": {}, "client_assertion": {}, "client_assertion_path": {},
	}},
	"s3_signing": {kind: free},
	"gcp_metadata": {kind: object, members: map[string]shape{
		"access_token_path": {}, "audience": {}, "endpoint": {}, "identity_token_path": {}, "scopes": {kind: texts},
	}},
	"azure_managed_identity": {kind: object, members: map[string]shape{
		"endpoint": {}, "api_version": {}, "resource": {}, "object_id": {}, "client_id": {}, "mi_res_id": {}, "use_app_service_msi": {kind: flag},
	}},
}, refused: map[string]string{"plugin": "there are no plugins here: use bearer, client_tls, oauth2, s3_signing, gcp_metadata or azure_managed_identity"}}

var configShape = shape{kind: object, members: map[string]shape{
	"services": {kind: named, members: map[string]shape{
		"name": {}, "url": {}, "headers": {kind: textMap}, "allow_insecure_tls": {kind: flag}, "response_header_timeout_seconds": {kind: whole},
		"tls":         {kind: object, members: map[string]shape{"ca_cert": {}, "system_ca_required": {kind: flag}}},
		"credentials": credentialShape,
	}, refused: map[string]string{"type": "only plain HTTP services are taken, no OCI registries: remove it and serve the bundle over HTTPS"}},
	"bundles": {kind: named, members: map[string]shape{
		"service": {}, "resource": {}, "signing": signingShape, "persist": {kind: flag}, "size_limit_bytes": {kind: whole}, "trigger": {}, "polling": pollingShape,
	}},
	"discovery": {kind: object, members: map[string]shape{
		"service": {}, "resource": {}, "decision": {}, "signing": signingShape, "persist": {kind: flag}, "trigger": {}, "polling": pollingShape,
	}, refused: map[string]string{"name": "is deprecated: use resource and decision", "prefix": "is deprecated: use resource"}},
	"keys": {kind: named, members: map[string]shape{"key": {}, "private_key": {}, "algorithm": {}, "scope": {}}},
	"status": {kind: object, members: map[string]shape{
		"service": {}, "partition_name": {}, "console": {kind: flag}, "trigger": {},
	}, refused: map[string]string{
		"plugin":            "there are no plugins here: use service or console",
		"prometheus":        "OPA's own metrics are not served here: remove it",
		"prometheus_config": "OPA's own metrics are not served here: remove it",
	}},
	"decision_logs": {kind: object, members: map[string]shape{
		"service": {}, "partition_name": {}, "resource": {}, "console": {kind: flag}, "mask_decision": {}, "drop_decision": {},
		"reporting": {kind: object, members: map[string]shape{
			"buffer_type": {}, "buffer_size_limit_bytes": {kind: whole}, "buffer_size_limit_events": {kind: whole}, "upload_size_limit_bytes": {kind: whole},
			"min_delay_seconds": {kind: whole}, "max_delay_seconds": {kind: whole}, "max_decisions_per_second": {kind: number}, "trigger": {},
		}},
	}, refused: map[string]string{
		"plugin":           "there are no plugins here: use service or console",
		"request_context":  notHere,
		"nd_builtin_cache": notHere,
	}},
	"persistence_directory": {},
	"labels":                {kind: textMap},
}, refused: map[string]string{
	"bundle":                         "is deprecated: name the bundle below bundles",
	"plugins":                        "there are no plugins here: remove it",
	"server":                         "OPA serves nothing here: remove it",
	"storage":                        "policy is kept in memory: remove it",
	"caching":                        "decisions are cached by policy.cache: remove it",
	"distributed_tracing":            notHere,
	"metrics_export":                 notHere,
	"default_decision":               "decisions are asked of data.mcp alone: remove it",
	"default_authorization_decision": "OPA serves nothing here: remove it",
	"nd_builtin_cache":               notHere,
}}

// check reports what in v does not have the shape.
func (s shape) check(at string, v any, report func(at, what string)) {
	want := ""
	switch s.kind {
	case text:
		if _, ok := v.(string); !ok {
			want = "a text"
		}
	case flag:
		if _, ok := v.(bool); !ok {
			want = "true or false"
		}
	case whole, number:
		n, ok := v.(json.Number)
		if _, err := n.Int64(); !ok || s.kind == whole && err != nil {
			want = "a whole number"
			if s.kind == number {
				want = "a number"
			}
		}
	case texts:
		list, ok := v.([]any)
		if !ok || slices.ContainsFunc(list, func(e any) bool { _, ok := e.(string); return !ok }) {
			want = "a list of texts"
		}
	case textMap:
		m, ok := v.(map[string]any)
		if !ok {
			want = "names with texts"
		}
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if _, ok := m[name].(string); !ok {
				report(at+"."+name, "must be a text")
			}
		}
	case object:
		s.membersOf(at, v, report)
		return
	case named:
		s.each(at, v, report)
		return
	}
	if want != "" {
		report(at, "must be "+want)
	}
}

func (s shape) each(at string, v any, report func(at, what string)) {
	m, ok := v.(map[string]any)
	if !ok {
		report(at, "must be names with their settings below")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		s.membersOf(at+"."+name, m[name], report)
	}
}

func (s shape) membersOf(at string, v any, report func(at, what string)) {
	m, ok := v.(map[string]any)
	if !ok {
		report(at, "must be settings, not "+kindOf(v))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		below := strings.TrimPrefix(at+"."+name, ".")
		if member, ok := s.members[name]; ok {
			member.check(below, m[name], report)
			continue
		}
		if why, ok := s.refused[name]; ok {
			report(below, why)
			continue
		}
		report(below, "unknown setting; known here: "+strings.Join(slices.Sorted(maps.Keys(s.members)), ", "))
	}
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "nothing"
	case []any:
		return "a list"
	}
	return fmt.Sprintf("%T", v)
}
