//! The legacy sessions that are open: whose each is, and which end because nobody ends them. Many
//! apps never do.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use crate::lock::lock;

/// A session that nobody uses for this long is over; its app gets 404 and begins a new one.
pub const LIFE: Duration = Duration::from_hours(24);
/// How many there are at most. For one more, the longest idle one ends.
pub const MOST: usize = 256;
/// How often the idle ones are looked for.
const SWEEP: Duration = Duration::from_mins(10);

/// All sessions, by id. `H` is what it takes to end one.
pub struct Sessions<H>(Arc<Mutex<State<H>>>);

struct State<H> {
    open: HashMap<String, Open<H>>,
    swept: Instant,
}

struct Open<H> {
    app: Arc<str>,
    home: H,
    last_used: Instant,
    /// Its streams and calls at this moment.
    in_use: usize,
}

/// One request or stream of a session. The session is in use until this is dropped.
pub struct Use<H> {
    sessions: Sessions<H>,
    id: String,
}

impl<H> Clone for Sessions<H> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<H> Default for Sessions<H> {
    fn default() -> Self {
        let state = State { open: HashMap::new(), swept: Instant::now() };
        Self(Arc::new(Mutex::new(state)))
    }
}

impl<H> Sessions<H> {
    /// Another app's token doesn't open a session.
    pub fn belongs_to(&self, id: &str, app: &str) -> bool {
        lock(&self.0).open.get(id).is_none_or(|open| *open.app == *app)
    }

    /// Whether not even an idle one could make room for one more.
    pub fn is_full(&self) -> bool {
        let state = lock(&self.0);
        state.open.len() >= MOST && state.open.values().all(|open| open.in_use > 0)
    }

    /// A new session; returns those that are over now, for the caller to end.
    #[must_use]
    pub fn opened(&self, id: &str, app: &Arc<str>, home: H) -> Vec<(String, H)> {
        let mut state = lock(&self.0);
        let mut over = state.sweep(Instant::now());
        while state.open.len() >= MOST {
            let idle = state.open.iter().filter(|(_, open)| open.in_use == 0);
            let Some(longest) = idle.min_by_key(|(_, open)| open.last_used) else { break };
            let id = longest.0.clone();
            over.extend(state.open.remove(&id).map(|open| (id, open.home)));
        }
        let open = Open { app: Arc::clone(app), home, last_used: Instant::now(), in_use: 0 };
        state.open.insert(id.to_owned(), open);
        over
    }

    pub fn closed(&self, id: &str) {
        lock(&self.0).open.remove(id);
    }

    /// It is used now; and those that are over are returned, for the caller to end.
    pub fn begin_use(&self, id: &str) -> (Option<Use<H>>, Vec<(String, H)>) {
        let mut state = lock(&self.0);
        let now = Instant::now();
        let begun = state.open.get_mut(id).map(|open| {
            open.last_used = now;
            open.in_use += 1;
            Use { sessions: self.clone(), id: id.to_owned() }
        });
        let due = now - state.swept >= SWEEP;
        (begun, if due { state.sweep(now) } else { Vec::new() })
    }
}

impl<H> State<H> {
    fn sweep(&mut self, now: Instant) -> Vec<(String, H)> {
        self.swept = now;
        let is_over =
            |_: &String, open: &mut Open<H>| open.in_use == 0 && now - open.last_used >= LIFE;
        self.open.extract_if(is_over).map(|(id, open)| (id, open.home)).collect()
    }
}

impl<H> Drop for Use<H> {
    fn drop(&mut self) {
        if let Some(open) = lock(&self.sessions.0).open.get_mut(&self.id) {
            open.last_used = Instant::now();
            open.in_use -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn app() -> Arc<str> {
        "app".into()
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_one_makes_room_and_one_in_use_never_does() {
        let sessions = Sessions::default();
        for number in 0..MOST {
            assert_eq!(sessions.opened(&number.to_string(), &app(), number), []);
            advance(Duration::from_secs(1)).await;
        }
        let (stream, _) = sessions.begin_use("0");
        drop(sessions.begin_use("1"));
        assert_eq!(sessions.opened("a", &app(), 1_000), [("2".to_owned(), 2)]);
        assert_eq!(sessions.opened("b", &app(), 1_001), [("3".to_owned(), 3)]);
        drop(stream);
        assert!(!sessions.is_full());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_nobody_uses_for_its_life_is_over_but_never_one_with_a_stream() {
        let sessions = Sessions::default();
        assert_eq!(sessions.opened("abandoned", &app(), 1), []);
        assert_eq!(sessions.opened("streams", &app(), 2), []);
        let (stream, _) = sessions.begin_use("streams");
        advance(LIFE / 2).await;
        assert_eq!(sessions.begin_use("streams").1, [], "not yet");
        advance(LIFE / 2).await;
        assert_eq!(sessions.begin_use("streams").1, [("abandoned".to_owned(), 1)]);
        drop(stream);
        advance(LIFE).await;
        assert_eq!(sessions.begin_use("none").1, [("streams".to_owned(), 2)]);
    }

    #[tokio::test]
    async fn when_all_are_in_use_there_is_no_room() {
        let sessions = Sessions::default();
        let mut uses = Vec::new();
        for number in 0..MOST {
            assert_eq!(sessions.opened(&number.to_string(), &app(), ()), []);
            uses.push(sessions.begin_use(&number.to_string()));
        }
        assert!(sessions.is_full());
        uses.pop();
        assert!(!sessions.is_full());
    }

    #[tokio::test]
    async fn another_apps_session_is_not_opened() {
        let sessions = Sessions::default();
        assert_eq!(sessions.opened("one", &app(), ()), []);
        assert!(sessions.belongs_to("one", "app") && !sessions.belongs_to("one", "other"));
        assert!(sessions.belongs_to("unknown", "other"), "that one gets 404");
        sessions.closed("one");
        assert!(sessions.belongs_to("one", "other"));
    }
}
