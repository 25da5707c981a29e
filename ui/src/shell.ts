// What the page hears from the shell, one snapshot when it opens and one after each change, and what
// it asks of it.

import { invoke } from "@tauri-apps/api/core";
import { listen } from "@tauri-apps/api/event";

import type { CapabilityType, CapabilityView, LogLine, Snapshot } from "./api";

/**
 * Calls `draw` with the newest snapshot, now and after each change. Fails, with a sentence to show,
 * if the gateway isn't running.
 */
export async function follow(draw: (snapshot: Snapshot) => void): Promise<void> {
  let newest = -1;
  const drawUnlessOlder = (snapshot: Snapshot) => {
    // The answer to the question below may be overtaken by an event.
    if (snapshot.revision < newest) return;
    newest = snapshot.revision;
    draw(snapshot);
  };
  // Listening begins before the question, so that no change falls between the two.
  await listen<Snapshot>("snapshot-changed", (event) => drawUnlessOlder(event.payload));
  drawUnlessOlder(await invoke<Snapshot>("snapshot"));
}

/** Where the shell wants the page to go, now and later. */
export async function places(go: (place: string) => void): Promise<void> {
  go(location.hash.slice(1));
  await listen<string>("go", (event) => go(event.payload));
}

export function log(upstream: string): Promise<LogLine[]> {
  return invoke("log", { upstream });
}

export function capabilities(upstream: string): Promise<CapabilityView[]> {
  return invoke("capabilities", { upstream });
}

export function toggle(upstream: string, kind: CapabilityType, key: string, enabled: boolean): Promise<void> {
  return invoke("toggle", { upstream, kind, key, enabled });
}

/** Whether the user is to be asked if Traygate starts at login. */
export function asksForStartAtLogin(): Promise<boolean> {
  return invoke("asks_for_start_at_login");
}

/** The user's answer; nobody asks again. */
export function startAtLogin(yes: boolean): Promise<void> {
  return invoke("start_at_login", { yes });
}

/** Quits Traygate, as its menu does. */
export function quit(): Promise<void> {
  return invoke("quit");
}

/** Starts Traygate anew, on the same port. */
export function tryAgain(): Promise<void> {
  return invoke("try_again");
}

/** Chooses another port for good, and starts Traygate anew on it. */
export function useAnotherPort(): Promise<void> {
  return invoke("use_another_port");
}
