package draft

import "strings"

// table makes a look-up of lines that begin with a class: "read: get list".
func table(lines string) map[string]string {
	words := map[string]string{}
	for line := range strings.Lines(lines) {
		class, list, _ := strings.Cut(strings.TrimSpace(line), ":")
		for _, w := range strings.Fields(list) {
			words[w] = class
		}
	}
	return words
}

// verbs are what tools do. A word that is a verb to some and a noun to others
// (block, issue, log) is not among them.
func verbs() map[string]string {
	return table(`
		read: get gets list lists search find fetch read query describe show view lookup look retrieve browse count check inspect
		read: preview summarize summarise analyze analyse compare diff explain calculate compute estimate ls cat head tail stat grep
		read: whoami ping watch monitor suggest recommend discover peek scan select ask detect measure validate status wait parse echo
		write: create add update edit post send upload insert patch modify change rename move copy append assign attach link
		write: set enable start pause resume open close archive unarchive restore mark save schedule publish register subscribe
		write: unsubscribe comment reply react star unstar follow unfollow submit import sync export generate draft pin unpin tag
		write: label fork merge approve request resolve reopen acknowledge mute unmute upsert duplicate clone build convert download
		write: connect configure make push apply reorder rerank prepare navigate click type fill press drag hover upgrade
		write: notify forward transition complete broadcast untrash unresolve replay resend retry redeliver compose index crop resize migrate allocate claim verify
		destructive: put write manage delete remove destroy drop purge erase wipe clear cancel terminate kill uninstall reset truncate trash discard
		destructive: unlink detach expire void refund charge capture pay payout transfer withdraw overwrite replace prune force abort
		destructive: finalize finalise unpublish deactivate disable evict drain shutdown stop rollback empty flush dismiss reject scale activate restart reboot
		admin: grant revoke invite share unshare authorize authorise impersonate promote demote rotate login logout authenticate
		admin: permit ban unban onboard
		execute: run rerun exec execute eval evaluate invoke deploy trigger install launch spawn dispatch compile
	`)
}

// runs tells the words that mean running what the caller gives, wherever they
// stand in a name.
func runs(word string) bool {
	switch word {
	case "exec", "execute", "eval", "evaluate", "shell", "bash", "powershell", "terminal", "sql", "python", "javascript":
		return true
	}
	return false
}

// objects are what makes a change graver than its verb says: rights, money,
// and what runs later.
func objects() map[string]string {
	return table(`
		admin: role roles permission permissions member members membership memberships owner owners user users group groups team teams
		admin: collaborator collaborators admin admins key keys apikey token tokens credential credentials secret secrets password passwords
		admin: webhook webhooks access acl policy policies sso oauth saml invite invites invitation invitations certificate certificates
		admin: firewall alias aliases delegate delegates forwarding grant grants session sessions sender identity identities
		execute: script scripts command commands copilot agent agents pipeline pipelines workflow workflows job jobs worker workers
		destructive: refund payout payouts transfer charge dispute adjustment adjustments transaction transactions subscription
	`)
}

// products are servers whose name stands for one domain.
func products() map[string]string {
	return table(`
		ai: openai anthropic huggingface replicate ollama elevenlabs perplexity
		analytics: amplitude mixpanel posthog metabase looker tableau bigquery
		commerce: shopify woocommerce bigcommerce magento ebay
		crm: salesforce hubspot pipedrive zendesk intercom freshdesk
		database: postgres postgresql mysql sqlite mongodb mongo redis elasticsearch supabase neon airtable snowflake mariadb clickhouse
		database: qdrant pinecone
		developer: github gitlab bitbucket jira linear sentry circleci jenkins launchdarkly context7 figma playwright postman
		hr: bamboohr workday greenhouse lever
		identity: auth0 okta keycloak entra clerk
		infrastructure: kubernetes k8s aws azure gcp cloudflare vercel netlify heroku docker terraform datadog grafana pagerduty
		infrastructure: digitalocean argocd gcloud
		marketing: mailchimp klaviyo sendgrid buffer
		messaging: slack gmail discord telegram whatsapp twilio line resend outlook
		payments: stripe paypal paddle square braintree adyen xero quickbooks
		productivity: notion asana trello todoist clickup monday confluence ms365 obsidian evernote
		storage: filesystem dropbox box s3 gdrive drive onedrive sharepoint
		web: brave tavily exa firecrawl puppeteer
	`)
}

// domains are plain words that stand for one domain, in the singular.
func domains() map[string]string {
	return table(`
		ai: llm embedding
		analytics: analytic
		commerce: product cart commerce ecommerce
		crm: crm lead
		database: database
		developer: git repo repository commit developer
		hr: payroll employee candidate hr
		identity: identity iam sso
		infrastructure: infrastructure cluster pod
		marketing: campaign marketing
		messaging: email mail sms messaging chat
		payments: payment invoice refund billing
		productivity: calendar productivity
		storage: storage file folder directory
		web: browser web crawl scrape
	`)
}

// usualData is the data that a domain mostly handles.
func usualData(domain string) string {
	switch domain {
	case "payments", "commerce":
		return "financial"
	case "messaging", "crm", "hr", "identity", "productivity", "storage", "database":
		return "personal"
	}
	return "internal"
}

// dataWords are what stands for sensitive data, in the singular.
func dataWords() map[string]string {
	return table(`
		personal: user member customer contact email mail message profile people person employee candidate lead comment conversation
		personal: chat thread event attendee log file document note record row address subscriber owner invitation recording review trace
		financial: invoice payment refund price balance payout transaction subscription order billing charge discount coupon dispute
		financial: tax revenue deal quote budget bank
		secret: secret token key apikey password credential certificate webhook env
	`)
}
