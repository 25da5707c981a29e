// A snapshot in words. Pure: what depends on the time is given the time.

import type { CapabilityType, CatalogueView, Freshness, Pause, State, UpstreamView } from "./api";

const STATES: Record<State["state"], string> = {
  disabled: "Disabled",
  idle: "Idle: starts when it is needed",
  connecting: "Connecting…",
  ready: "Ready",
  degraded: "Degraded",
  unavailable: "Unavailable",
  needs_sign_in: "Needs sign-in",
  misconfigured: "Misconfigured",
};

/** How a state is to be taken; always shown beside its words, never instead of them. */
export type Mood = "good" | "quiet" | "warning" | "bad";

const MOODS: Record<State["state"], Mood> = {
  disabled: "quiet",
  idle: "quiet",
  connecting: "quiet",
  ready: "good",
  degraded: "warning",
  unavailable: "bad",
  needs_sign_in: "warning",
  misconfigured: "bad",
};

const NOUNS: Record<CapabilityType, [one: string, many: string]> = {
  tool: ["tool", "tools"],
  resource: ["resource", "resources"],
  template: ["resource template", "resource templates"],
  prompt: ["prompt", "prompts"],
};

export function state(of: State): string {
  return STATES[of.state];
}

export function mood(of: State): Mood {
  return MOODS[of.state];
}

/** Why it isn't ready, and when it is tried again; `null` if there is nothing to say. */
export function reason(of: State): string | null {
  switch (of.state) {
    case "degraded":
      return of.error;
    case "unavailable":
      return of.next_try === null ? of.reason : `${of.reason} (next try ${time(of.next_try)})`;
    case "needs_sign_in":
    case "misconfigured":
      return of.reason;
    default:
      return null;
  }
}

/** `MCP 2026-07-28 (modern)`; `null` before the first connection. */
export function era(of: UpstreamView): string | null {
  if (of.era === null) return null;
  return of.protocol_version === null ? `MCP (${of.era})` : `MCP ${of.protocol_version} (${of.era})`;
}

/** `84 of 120 tools on`, `all 13 tools on` */
export function count({ type, on, total }: CatalogueView): string {
  const [one, many] = NOUNS[type];
  if (total === 0) return `no ${many}`;
  const noun = total === 1 ? one : many;
  if (on === total) return total === 1 ? `1 ${noun} on` : `all ${total} ${noun} on`;
  return `${on} of ${total} ${noun} on`;
}

/** How far the list can be trusted; `null` where there is nothing to add to the count. */
export function freshness(of: Freshness, now: number): string | null {
  switch (of.is) {
    case "fresh":
      if (of.until === null) return "fresh until the server says otherwise";
      return of.until > now ? `fresh until ${time(of.until)}` : "read again when next needed";
    case "stale":
      return `as of ${time(of.since)}: ${of.because}`;
    case "unavailable":
      return `not available: ${of.because}`;
    case "unread":
      return "not read yet";
    case "empty":
    case "off":
      return null;
  }
}

export function pause(of: Pause): string {
  const what = of.what === "all" ? "Everything is paused" : "Tools that may change something are paused";
  return of.until === null ? `${what} until you resume.` : `${what} until ${time(of.until)}.`;
}

/** The time of day; with its date if that isn't today's. */
function time(at: number): string {
  const date = new Date(at);
  const today = date.toDateString() === new Date().toDateString();
  return today ? date.toLocaleTimeString() : date.toLocaleString();
}
