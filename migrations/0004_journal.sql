-- The journal: what happened, and which calls were made. Never an argument, a result, a secret or
-- anything that an upstream wrote. Names stand as they were then, so rows outlive their upstream.

-- `seq` is one sequence over both tables, in the order of writing.
CREATE TABLE journal_events (
    seq         INTEGER PRIMARY KEY,
    -- Milliseconds of Unix time.
    at          INTEGER NOT NULL,
    -- The same through renames.
    upstream_id INTEGER,
    upstream    TEXT,
    -- Through what a person did it.
    by          TEXT CHECK (by IN ('cli', 'window', 'tray', 'api')),
    fact        TEXT    NOT NULL CHECK (json_valid(fact)),
    what        TEXT    NOT NULL AS (fact ->> 'what') VIRTUAL
) STRICT;

CREATE INDEX journal_events_by_time ON journal_events (at);

CREATE TABLE journal_invocations (
    seq             INTEGER PRIMARY KEY,
    at              INTEGER NOT NULL,
    upstream_id     INTEGER,
    upstream        TEXT,
    app             TEXT    NOT NULL,
    capability_type TEXT    NOT NULL CHECK (capability_type IN ('tool', 'resource', 'template', 'prompt')),
    -- NULL: it would have told what the app asked for beyond the name of a capability.
    capability_key  TEXT,
    duration_ms     INTEGER NOT NULL CHECK (duration_ms >= 0),
    -- 'ok', 'tool_error', 'error', 'cancelled', or one of the stable codes.
    outcome         TEXT    NOT NULL,
    -- The number of the upstream's own error.
    code            INTEGER,
    -- How an outage touched it.
    touched         TEXT CHECK (touched IN ('waited', 'repeated'))
) STRICT;

CREATE INDEX journal_invocations_by_time ON journal_invocations (at);

PRAGMA user_version = 4;
