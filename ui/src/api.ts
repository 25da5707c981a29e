// The words of the control API that the page draws: `src-tauri/gateway/src/api.rs` in TypeScript.
// Times are milliseconds of Unix time.

export interface Snapshot {
  /** Grows with each change. */
  revision: number;
  version: string;
  pid: number;
  endpoint: string;
  data_dir: string;
  started_at: number;
  pause: Pause | null;
  /** Whether the user wants notifications at all. */
  notifications: boolean;
  /** In the user's order. */
  upstreams: UpstreamView[];
  /** What the user pinned to the tray. */
  pins: PinView[];
  apps: AppView[];
}

/** Why the gateway could not start. */
export interface Failure {
  words: string;
  /** The port, if it is in use by another program. */
  port: number | null;
}

export interface UpstreamView {
  name: string;
  enabled: boolean;
  /** One line, without secrets. */
  reached_by: string;
  transport_kind: string;
  era: Era | null;
  protocol_version: string | null;
  server: string | null;
  state: State;
  since: number;
  /** While it is connecting: what its program last said, or what it waits for. */
  progress?: string;
  catalogues: CatalogueView[];
  /** The first twenty. */
  tools: ToolView[];
  settings: UpstreamSettings;
}

export interface ToolView {
  key: string;
  enabled: boolean;
  read_only: boolean;
}

export interface PinView {
  upstream: string;
  type: CapabilityType;
  key: string;
  enabled: boolean;
}

export type State =
  | { state: "disabled" }
  | { state: "idle" }
  | { state: "connecting" }
  | { state: "ready" }
  | { state: "degraded"; error: string }
  | { state: "unavailable"; reason: string; next_try: number | null }
  | { state: "needs_sign_in"; reason: string }
  | { state: "misconfigured"; reason: string };

export interface CatalogueView {
  type: CapabilityType;
  freshness: Freshness;
  total: number;
  on: number;
  warnings: string[];
}

export type CapabilityType = "tool" | "resource" | "template" | "prompt";

export type Freshness =
  | { is: "fresh"; until: number | null }
  | { is: "stale"; since: number; because: string }
  | { is: "unavailable"; because: string }
  | { is: "empty" }
  | { is: "off" }
  | { is: "unread" };

export interface AppView {
  name: string;
  created_at: number;
  last_seen_at: number | null;
  client: string | null;
  era: Era | null;
  protocol_version: string | null;
  listed_tools: number | null;
  connections: number;
  connected_since: number | null;
}

export interface CapabilityView {
  type: CapabilityType;
  key: string;
  enabled: boolean;
  /** In the list as last read; otherwise known from the stored choice only. */
  live: boolean;
  read_only: boolean;
}

export interface LogLine {
  at: number;
  /** `stderr`, `stdout`, `server` or `traygate`. */
  from: string;
  text: string;
}

export interface Pause {
  what: "all" | "writes";
  until: number | null;
}

export type Era = "modern" | "legacy";

export interface UpstreamSettings {
  auto_enable_new_capabilities: boolean;
  legacy_ttl: number | "until_told";
  isolation: "shared" | "isolated";
  request_timeout: number;
  call_idle_timeout: number;
  call_total_timeout: number;
  notifications: boolean;
  idle_stop: number;
}
