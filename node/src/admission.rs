//! How much runs at the same time, and how much waits.
//!
//! Those who wait are served in turn, session by session, and within a session in the order of their arrival. So a session that
//! queues hundreds of statements makes another one wait for one of them, not for all.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use volary_flight_proto::{Error, ErrorCode, Result};

/// How much the time that a place was held counts in the mean: about the last ten of them make it.
const WEIGHT_OF_LATEST: f64 = 0.2;
/// As long as no place was given back yet.
const ASSUMED_SECONDS: f64 = 1.0;
/// When those who are refused are told to come back, at the earliest and at the latest.
const RETRY_SECONDS: (f64, f64) = (0.1, 60.0);

/// Lets so many run, so many more wait for their turn, and refuses the others.
#[derive(Debug)]
pub struct Admission {
    what: &'static str,
    max_waiting: usize,
    max_waiting_per_session: usize,
    /// Makes the keys of sessions. Two with one key would wait in one queue, which is no harm.
    keys: RandomState,
    shared: Arc<Shared>,
}

/// A place; given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    /// None once it is nobody's.
    of: Option<Arc<Shared>>,
    since: Instant,
}

impl Admission {
    /// `what` is what waits, in the plural, for errors: "statements".
    pub fn new(what: &'static str, max_running: usize, max_waiting: usize) -> Self {
        Self {
            what,
            max_waiting,
            max_waiting_per_session: max_waiting,
            keys: RandomState::new(),
            shared: Arc::new(Shared {
                max_running: max_running.max(1),
                state: Mutex::default(),
            }),
        }
    }

    /// The same, with a limit for those of one session that wait.
    #[must_use]
    pub fn with_max_waiting_per_session(self, max_waiting_per_session: usize) -> Self {
        Self {
            max_waiting_per_session,
            ..self
        }
    }

    /// Waits for a place, in one queue with all others who name no session. Dropping the future gives up waiting.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many wait already, with when to try again.
    pub async fn enter(&self) -> Result<Place> {
        self.enter_as(&()).await
    }

    /// Waits for a place as one of a session. Dropping the future gives up waiting.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many wait already, with when to try again.
    pub async fn enter_as(&self, session: &impl Hash) -> Result<Place> {
        let session = self.keys.hash_one(session);
        let (number, place) = {
            let mut state = self.shared.state.lock();
            // As long as somebody waits, all places are taken: nobody is overtaken here.
            if state.running < self.shared.max_running {
                state.running += 1;
                return Ok(Place::new(&self.shared));
            }
            self.check_room(&state, session)?;
            state.queue_up(session)
        };
        let _waiting = Waiting {
            shared: &self.shared,
            session,
            number,
        };
        place
            .await
            .map_err(|_| Error::new(ErrorCode::Cancelled, "the node is shutting down"))
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.shared.state.lock().running
    }

    fn check_room(&self, state: &State, session: u64) -> Result<()> {
        let (what, of_session) = (self.what, state.waiting_of(session));
        let text = if state.waiting >= self.max_waiting {
            format!(
                "no more {what} are taken: {} running, {} waiting",
                self.shared.max_running, state.waiting
            )
        } else if of_session >= self.max_waiting_per_session {
            format!("{of_session} {what} of this session wait already: no more of it are taken")
        } else {
            return Ok(());
        };
        let after = state.time_to_wait(self.shared.max_running);
        Err(Error::new(ErrorCode::ResourceExhausted, text).with_retry_after(after))
    }
}

impl Place {
    fn new(shared: &Arc<Shared>) -> Self {
        Self {
            of: Some(Arc::clone(shared)),
            since: Instant::now(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(shared) = self.of.take() {
            shared.state.lock().note_held(self.since.elapsed());
            shared.pass_on();
        }
    }
}

#[derive(Debug)]
struct Shared {
    max_running: usize,
    state: Mutex<State>,
}

impl Shared {
    /// Gives a place to the one whose turn it is, or takes it back.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let Some(next) = self.state.lock().take_turn() else {
                return;
            };
            // A place that is on its way to one who gives up is dropped there, and passed on.
            match next.send(Place::new(self)) {
                Ok(()) => return,
                // It has given up. Dropping the place that comes back would pass it on from within, again and again.
                Err(mut place) => place.of = None,
            }
        }
    }
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    waiting: usize,
    /// Those who wait, by session.
    queues: HashMap<u64, VecDeque<Waiter>>,
    /// The sessions of `queues`, each once, the one that is served next first.
    turns: VecDeque<u64>,
    last_number: u64,
    /// Of the last places, in seconds.
    mean_held: Option<f64>,
}

#[derive(Debug)]
struct Waiter {
    /// Grows with the arrival.
    number: u64,
    place: oneshot::Sender<Place>,
}

impl State {
    fn waiting_of(&self, session: u64) -> usize {
        self.queues.get(&session).map_or(0, VecDeque::len)
    }

    fn queue_up(&mut self, session: u64) -> (u64, oneshot::Receiver<Place>) {
        let (sender, receiver) = oneshot::channel();
        self.last_number += 1;
        let queue = self.queues.entry(session).or_default();
        if queue.is_empty() {
            self.turns.push_back(session);
        }
        queue.push_back(Waiter {
            number: self.last_number,
            place: sender,
        });
        self.waiting += 1;
        (self.last_number, receiver)
    }

    /// The one whose turn it is; if nobody waits, one less runs.
    fn take_turn(&mut self) -> Option<oneshot::Sender<Place>> {
        while let Some(session) = self.turns.pop_front() {
            let Some(queue) = self.queues.get_mut(&session) else {
                continue;
            };
            let next = queue.pop_front();
            if queue.is_empty() {
                self.queues.remove(&session);
            } else {
                self.turns.push_back(session);
            }
            if let Some(waiter) = next {
                self.waiting -= 1;
                return Some(waiter.place);
            }
        }
        self.running -= 1;
        None
    }

    /// Does nothing for one who has got a place.
    fn give_up(&mut self, session: u64, number: u64) {
        let Some(queue) = self.queues.get_mut(&session) else {
            return;
        };
        let Ok(position) = queue.binary_search_by_key(&number, |waiter| waiter.number) else {
            return;
        };
        queue.remove(position);
        self.waiting -= 1;
        if queue.is_empty() {
            self.queues.remove(&session);
            self.turns.retain(|turn| *turn != session);
        }
    }

    fn note_held(&mut self, held: Duration) {
        let held = held.as_secs_f64();
        let mean = self.mean_held.get_or_insert(held);
        *mean += (held - *mean) * WEIGHT_OF_LATEST;
    }

    /// About how long it takes until one who comes now, behind all who wait, would get a place.
    fn time_to_wait(&self, max_running: usize) -> Duration {
        let rounds = (self.waiting + 1) as f64 / max_running as f64;
        let seconds = self.mean_held.unwrap_or(ASSUMED_SECONDS) * rounds;
        let (shortest, longest) = RETRY_SECONDS;
        Duration::from_secs_f64(seconds.clamp(shortest, longest))
    }
}

/// One who waits. Dropping it gives up; a place that was sent meanwhile is in the receiver, which is dropped too.
struct Waiting<'a> {
    shared: &'a Shared,
    session: u64,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().give_up(self.session, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;

    use super::*;

    type Entering<'a> = Pin<Box<dyn Future<Output = Result<Place>> + Send + 'a>>;

    /// Those who wait, in the order of their arrival, by the name of their session.
    struct Queue<'a> {
        admission: &'a Admission,
        waiting: Vec<(char, Entering<'a>)>,
    }

    impl<'a> Queue<'a> {
        fn new(admission: &'a Admission, sessions: &str) -> Self {
            let mut queue = Self {
                admission,
                waiting: Vec::new(),
            };
            for session in sessions.chars() {
                queue.add(session);
            }
            queue
        }

        fn add(&mut self, session: char) {
            let admission = self.admission;
            let mut entering: Entering =
                Box::pin(async move { admission.enter_as(&session).await });
            assert!(entering.as_mut().now_or_never().is_none());
            self.waiting.push((session, entering));
        }

        /// Who has got a place; nobody if all wait.
        fn served(&mut self) -> Option<(char, Place)> {
            for position in 0..self.waiting.len() {
                let (session, entering) = &mut self.waiting[position];
                if let Some(place) = entering.as_mut().now_or_never() {
                    let session = *session;
                    drop(self.waiting.remove(position));
                    return Some((session, place.unwrap()));
                }
            }
            None
        }

        /// Gives the one place back again and again: the sessions that got it.
        fn served_one_after_another(&mut self, mut place: Place) -> String {
            let mut order = String::new();
            while !self.waiting.is_empty() {
                drop(place);
                let (session, next) = self.served().unwrap();
                order.push(session);
                place = next;
            }
            order
        }
    }

    #[tokio::test]
    async fn some_run_some_wait_and_the_others_are_refused() {
        let admission = Admission::new("queries", 1, 1);
        let first = admission.enter().await.unwrap();
        let mut second = Box::pin(admission.enter());
        assert!(second.as_mut().now_or_never().is_none());
        let refused = admission.enter().await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ResourceExhausted);
        assert_eq!(
            refused.message(),
            "no more queries are taken: 1 running, 1 waiting; retry in about 2 s"
        );
        drop(first);
        second.await.unwrap();
        assert_eq!(admission.running(), 0);
    }

    #[tokio::test]
    async fn sessions_are_served_in_turn_and_each_in_the_order_of_its_arrival() {
        let admission = Admission::new("queries", 1, 100);
        for (arrival, order) in [
            ("aaaab", "abaaa"),
            ("aaabbc", "abcaba"),
            ("abab", "abab"),
            ("aaaa", "aaaa"),
        ] {
            let place = admission.enter().await.unwrap();
            let mut queue = Queue::new(&admission, arrival);
            assert_eq!(queue.served_one_after_another(place), order, "{arrival}");
        }
    }

    #[tokio::test]
    async fn one_who_comes_later_waits_for_one_of_each_session_at_most() {
        let admission = Admission::new("queries", 1, 100);
        let place = admission.enter().await.unwrap();
        let mut queue = Queue::new(&admission, "aaaaaaaabbbb");
        drop(place);
        let (_, place) = queue.served().unwrap();
        queue.add('c');
        assert_eq!(queue.served_one_after_another(place), "bacbababaaaa");
    }

    #[tokio::test]
    async fn one_who_gives_up_loses_its_turn_and_nobody_else_does() {
        let admission = Admission::new("queries", 1, 100);
        let place = admission.enter().await.unwrap();
        let mut queue = Queue::new(&admission, "abcab");
        drop(queue.waiting.remove(1)); // the first of b, which has another one
        drop(queue.waiting.remove(1)); // the only one of c
        assert_eq!(queue.served_one_after_another(place), "aba");
        assert_eq!(admission.running(), 0);
    }

    #[tokio::test]
    async fn a_place_that_is_on_its_way_to_one_who_gives_up_goes_on_to_the_next() {
        let admission = Admission::new("queries", 1, 100);
        let place = admission.enter().await.unwrap();
        let mut queue = Queue::new(&admission, "aab");
        drop(place);
        // It was sent a place, and has not looked.
        drop(queue.waiting.remove(0));
        assert_eq!(admission.running(), 1);
        let (session, place) = queue.served().unwrap();
        assert_eq!(session, 'b');
        drop(place);
        drop(queue);
        assert_eq!(admission.running(), 0);
    }

    #[tokio::test]
    async fn a_session_may_not_fill_the_queue() {
        let admission = Admission::new("queries", 1, 3).with_max_waiting_per_session(2);
        let _place = admission.enter().await.unwrap();
        let mut queue = Queue::new(&admission, "aa");
        let refused = admission.enter_as(&'a').await.unwrap_err();
        assert!(
            refused
                .message()
                .starts_with("2 queries of this session wait already"),
            "{refused}"
        );
        queue.add('b');
        let refused = admission.enter_as(&'c').await.unwrap_err();
        assert!(
            refused.message().contains("1 running, 3 waiting"),
            "{refused}"
        );
        drop(queue.waiting.remove(0));
        queue.add('a');
    }

    #[test]
    fn the_time_to_wait_follows_how_long_places_were_held_and_how_many_wait() {
        let mut state = State::default();
        for _ in 0..50 {
            state.note_held(Duration::from_secs(4));
        }
        state.waiting = 9;
        assert_eq!(state.time_to_wait(10).as_secs(), 4);
        assert_eq!(state.time_to_wait(2).as_secs(), 20);
        assert_eq!(state.time_to_wait(1000), Duration::from_millis(100));
        state.waiting = 99;
        assert_eq!(state.time_to_wait(1), Duration::from_secs(60));
        for _ in 0..50 {
            state.note_held(Duration::from_millis(1));
        }
        assert!(state.time_to_wait(1) < Duration::from_millis(200));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_place_is_lost_whoever_gives_up_and_whenever() {
        const PLACES: usize = 3;
        let admission = Arc::new(Admission::new("queries", PLACES, 1000));
        let running = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..64_u64)
            .map(|task| {
                let (admission, running) = (Arc::clone(&admission), Arc::clone(&running));
                tokio::spawn(async move {
                    let mut random = task + 1;
                    for _ in 0..200 {
                        // xorshift64
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let session = random % 5;
                        let patience = Duration::from_micros((random >> 8) & 0xff);
                        let entering = admission.enter_as(&session);
                        if let Ok(place) = tokio::time::timeout(patience, entering).await {
                            let place = place.unwrap();
                            assert!(running.fetch_add(1, Ordering::SeqCst) < PLACES);
                            tokio::task::yield_now().await;
                            running.fetch_sub(1, Ordering::SeqCst);
                            drop(place);
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(admission.running(), 0);
        let state = admission.shared.state.lock();
        assert_eq!(state.waiting, 0);
        assert!(state.queues.is_empty() && state.turns.is_empty());
    }
}
