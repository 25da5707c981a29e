-- What the user chose: upstreams, preferences, pins, apps and settings. No title, description or
-- schema of a capability is ever stored.

-- "Tray": tells a database of Traygate from any other SQLite file.
PRAGMA application_id = 0x54726179;

CREATE TABLE upstreams (
    -- Never used twice: what still runs for a removed upstream must not meet its successor.
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    name      TEXT    NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 31),
    -- From 1, without gaps.
    position  INTEGER NOT NULL CHECK (position > 0),
    enabled   INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    transport TEXT    NOT NULL CHECK (json_valid(transport)),
    settings  TEXT    NOT NULL CHECK (json_valid(settings)),
    -- What the connector found last; a hint, checked again when it fails.
    era       TEXT             CHECK (era IN ('modern', 'legacy'))
) STRICT;

CREATE TABLE capability_preferences (
    upstream_id     INTEGER NOT NULL REFERENCES upstreams (id) ON DELETE CASCADE,
    capability_type TEXT    NOT NULL CHECK (capability_type IN ('tool', 'resource', 'template', 'prompt')),
    capability_key  TEXT    NOT NULL,
    enabled         INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    first_seen_at   INTEGER NOT NULL,
    -- NULL: the user decided before it was ever seen.
    last_seen_at    INTEGER,
    PRIMARY KEY (upstream_id, capability_type, capability_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE pins (
    upstream_id     INTEGER NOT NULL REFERENCES upstreams (id) ON DELETE CASCADE,
    capability_type TEXT    NOT NULL CHECK (capability_type IN ('tool', 'resource', 'template', 'prompt')),
    capability_key  TEXT    NOT NULL,
    PRIMARY KEY (upstream_id, capability_type, capability_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE apps (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT    NOT NULL UNIQUE CHECK (length(name) > 0),
    -- SHA-256 of the token; the token itself is shown once and kept nowhere.
    token_hash   BLOB    NOT NULL UNIQUE CHECK (length(token_hash) = 32),
    created_at   INTEGER NOT NULL,
    last_seen_at INTEGER
) STRICT;

CREATE TABLE settings (
    key   TEXT PRIMARY KEY NOT NULL CHECK (length(key) > 0),
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Always the number of the newest migration.
PRAGMA user_version = 1;
