package reads

// notPure are the built-ins that answers cannot be kept with: they read a clock,
// keys, the network or the place of the call, or nobody has looked at them closely
// enough yet, which only costs speed.
const notPure = "" +
	"base64url.decode base64url.encode base64url.encode_no_pad cast_array cast_boolean cast_null " +
	"cast_object cast_set cast_string crypto.hmac.equal crypto.hmac.md5 crypto.hmac.sha1 " +
	"crypto.hmac.sha256 crypto.hmac.sha512 crypto.md5 crypto.parse_private_keys crypto.sha1 crypto.sha256 " +
	"crypto.x509.parse_and_verify_certificates crypto.x509.parse_and_verify_certificates_with_options " +
	"crypto.x509.parse_certificate_request crypto.x509.parse_certificates crypto.x509.parse_keypair " +
	"crypto.x509.parse_rsa_private_key graph.reachable graph.reachable_paths graphql.is_valid " +
	"graphql.parse graphql.parse_and_verify graphql.parse_query graphql.parse_schema " +
	"graphql.schema_is_valid http.send internal.print internal.test_case io.jwt.decode " +
	"io.jwt.decode_verify io.jwt.encode_sign io.jwt.encode_sign_raw io.jwt.verify_eddsa " +
	"io.jwt.verify_es256 io.jwt.verify_es384 io.jwt.verify_es512 io.jwt.verify_hs256 io.jwt.verify_hs384 " +
	"io.jwt.verify_hs512 io.jwt.verify_ps256 io.jwt.verify_ps384 io.jwt.verify_ps512 io.jwt.verify_rs256 " +
	"io.jwt.verify_rs384 io.jwt.verify_rs512 json.marshal_with_options json.match_schema " +
	"json.verify_schema net.cidr_contains_matches net.cidr_expand net.cidr_merge net.cidr_overlap " +
	"net.lookup_ip_addr opa.runtime print providers.aws.sign_req rand.intn re_match regex.globs_match " +
	"regex.template_match rego.metadata.chain rego.metadata.rule rego.parse_module set_diff " +
	"strings.render_template strings.split_n time.add_date time.clock time.date time.diff time.format " +
	"time.now_ns time.parse_duration_ns time.parse_ns time.parse_rfc3339_ns time.weekday trace " +
	"uri.is_valid uri.parse urlquery.decode urlquery.decode_object urlquery.encode urlquery.encode_object " +
	"uuid.parse uuid.rfc4122 yaml.is_valid yaml.marshal yaml.unmarshal"
