-- What is written past the binary is refused by it, because head.digest no longer
-- is the digest of what the tables hold.

create table head (
	single   boolean primary key default true check (single),
	revision bigint not null,
	digest   text not null, -- SHA-256 of the canonical encoding of all that counts
	signature text not null default ''
);

create table servers (
	name       text primary key,
	attributes jsonb, -- of the server itself; null where only its tools are known
	digest     text not null -- of the encoding of the server and its tools
);

create table tools (
	attributes jsonb not null, -- with server and name, without the pin
	server     text not null generated always as (attributes ->> 'server') stored,
	name       text not null generated always as (attributes ->> 'name') stored,
	primary key (server, name)
);

create table pins (
	server text not null,
	tool   text not null,
	sha256 text not null, -- of the definition that was approved
	primary key (server, tool),
	foreign key (server, tool) references tools (server, name) on delete cascade
);

create table quarantine (
	server text not null,
	tool   text not null default '', -- '' is the whole server
	reason text not null,
	by     text not null default '',
	since  timestamptz,
	primary key (server, tool)
);

create table definitions (
	server     text not null,
	tool       text not null,
	sha256     text not null,
	definition text not null, -- canonical JSON
	primary key (server, tool, sha256)
);

create table revisions (
	revision bigint primary key,
	at       timestamptz not null default clock_timestamp(), -- not when who wrote it began to wait
	actor    text not null,
	note     text not null default '',
	digest   text not null
);

create table history (
	revision bigint not null references revisions (revision),
	n        integer not null,
	what     text not null check (what in ('server', 'tool', 'pin', 'quarantine', 'signature')),
	server   text not null default '',
	tool     text not null default '',
	old      jsonb, -- null: was not there
	new      jsonb, -- null: is not there any more
	primary key (revision, n)
);

create index history_of on history (server, tool, revision);
