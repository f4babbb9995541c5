//! Callers that wait for a place are served in turn: one user after the other, for each user one
//! session after the other, and within a session in the order of arrival. So if a user queues
//! hundreds of statements, another user waits for one of them, not for all. No user can have all
//! places: above a limit, a user waits even if places are free.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};

/// Weight of the latest place in the mean of the times for which places are held. About the last
/// ten places determine the mean.
const WEIGHT_OF_LATEST: f64 = 0.2;
/// Assumed mean time in seconds, as long as no place was returned yet.
const ASSUMED_SECONDS: f64 = 1.0;
/// Shortest and longest time, in seconds, after which refused callers are told to try again.
const RETRY_SECONDS: (f64, f64) = (0.1, 60.0);

/// Returns the number of places that one user may have if no setting limits it: three quarters.
pub fn default_places_per_user(max_running: usize) -> usize {
    max_running.saturating_mul(3).div_ceil(4)
}

/// Lets a limited number of callers run and a limited number wait for their turn, and refuses the
/// rest.
#[derive(Debug)]
pub struct Admission {
    what: &'static str,
    max_waiting: usize,
    max_waiting_per_session: usize,
    /// Hashes users and sessions to keys. If two of them have the same key, they share a queue and
    /// a limit. That does no harm.
    keys: RandomState,
    shared: Arc<Shared>,
}

/// The place of a caller that runs. Dropping it frees the place.
#[derive(Debug)]
pub struct RunPlace {
    /// The admission that the place belongs to. It is `None` once the place has been taken back.
    owner: Option<Arc<Shared>>,
    /// Key of the user who has the place.
    user: u64,
    since: Instant,
    /// True if another caller may run in this place, while its holder goes on running.
    is_shared: bool,
}

impl Admission {
    /// Creates an admission. `what` names in the plural what waits, for errors: "statements".
    pub fn new(what: &'static str, max_running: usize, max_waiting: usize) -> Self {
        Self {
            what,
            max_waiting,
            max_waiting_per_session: max_waiting,
            keys: RandomState::new(),
            shared: Arc::new(Shared {
                max_running: max_running.max(1),
                max_running_per_user: usize::MAX,
                state: Mutex::default(),
            }),
        }
    }

    /// Sets a limit on how many callers of one user run at the same time.
    #[must_use]
    pub fn with_max_running_per_user(self, max_running_per_user: usize) -> Self {
        let shared = Shared {
            max_running: self.shared.max_running,
            max_running_per_user: max_running_per_user.max(1),
            state: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            ..self
        }
    }

    /// Sets a limit on how many callers of one session wait.
    #[must_use]
    pub fn with_max_waiting_per_session(self, max_waiting_per_session: usize) -> Self {
        Self {
            max_waiting_per_session,
            ..self
        }
    }

    /// Waits for a place for a session that counts as a user of its own. Dropping the future gives
    /// up waiting.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many wait already. The error says when to try again.
    pub async fn enter_session(&self, session: &impl Hash) -> Result<RunPlace> {
        self.enter(session, session, None).await
    }

    /// Waits for a place for a session of a user. `most_of_user` limits how many callers of the
    /// user run at the same time, if it is below the limit that holds for every user. Dropping the
    /// future gives up waiting.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many wait already. The error says when to try again.
    pub async fn enter(
        &self,
        user: &impl Hash,
        session: &impl Hash,
        most_of_user: Option<usize>,
    ) -> Result<RunPlace> {
        let (user, session) = (self.keys.hash_one(user), self.keys.hash_one(session));
        let most = self.shared.max_of_user(most_of_user);
        let (number, place) = {
            let mut state = self.shared.state.lock();
            if self.shared.has_room(&state, user, most) {
                state.take(user);
                return Ok(RunPlace::new(&self.shared, user));
            }
            self.check_may_wait(&state, user, session)?;
            state.queue_up(user, session, most)
        };
        let _waiting = WaitingGuard {
            shared: &self.shared,
            user,
            session,
            number,
        };
        place.await.map_err(|_| {
            Error::new(ErrorCode::Cancelled, "the node is shutting down")
                .with_sqlstate(SqlState::AdminShutdown)
        })
    }

    /// Returns a place for the user if one is free and the user has not reached its limit. Does not
    /// wait.
    pub fn try_enter(&self, user: &impl Hash, most_of_user: Option<usize>) -> Option<RunPlace> {
        let user = self.keys.hash_one(user);
        let most = self.shared.max_of_user(most_of_user);
        let mut state = self.shared.state.lock();
        self.shared.has_room(&state, user, most).then(|| {
            state.take(user);
            RunPlace::new(&self.shared, user)
        })
    }

    /// Returns the number of callers that run.
    pub fn running(&self) -> usize {
        self.shared.state.lock().running
    }

    /// Returns the number of callers that wait.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().waiting
    }

    /// Returns whether a place is free.
    pub(crate) fn has_free_place(&self) -> bool {
        self.shared.state.lock().running < self.shared.max_running
    }

    /// Returns whether somebody waits because all places are taken.
    pub fn is_full(&self) -> bool {
        let state = self.shared.state.lock();
        state.running >= self.shared.max_running && state.waiting > 0
    }

    fn check_may_wait(&self, state: &QueueState, user: u64, session: u64) -> Result<()> {
        let (what, of_session) = (self.what, state.waiting_of(user, session));
        let text = if state.waiting >= self.max_waiting {
            format!(
                "too many {what}: {} running, {} waiting",
                state.running, state.waiting
            )
        } else if of_session >= self.max_waiting_per_session {
            format!("too many {what} of this session: {of_session} waiting")
        } else {
            return Ok(());
        };
        let after = state.estimated_wait(self.shared.max_running);
        Err(Error::new(ErrorCode::ResourceExhausted, text)
            .with_sqlstate(SqlState::TooManyConnections)
            .with_retry_after(after))
    }
}

impl RunPlace {
    fn new(shared: &Arc<Shared>, user: u64) -> Self {
        Self {
            owner: Some(Arc::clone(shared)),
            user,
            since: Instant::now(),
            is_shared: false,
        }
    }

    /// Gives the place back. Returns whether a waiter has got a place because of that.
    pub(crate) fn give_back(mut self) -> bool {
        self.end()
    }

    /// Lets another caller run in addition to the holder. The place still counts for its user.
    pub(crate) fn share(&mut self) {
        if let Some(shared) = &self.owner
            && !self.is_shared
        {
            self.is_shared = true;
            shared.serve_next(|state| state.running -= 1);
        }
    }

    fn end(&mut self) -> bool {
        let Some(shared) = self.owner.take() else {
            return false;
        };
        shared.serve_next(|state| {
            state.note_duration(self.since.elapsed());
            if self.is_shared {
                state.remove_from(self.user);
            } else {
                state.give_back(self.user);
            }
        })
    }
}

impl Drop for RunPlace {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Debug)]
struct Shared {
    max_running: usize,
    max_running_per_user: usize,
    state: Mutex<QueueState>,
}

impl Shared {
    /// Returns whether the user may take a place at once. This cannot overtake a waiter: somebody
    /// waits only while all places are taken, or all places of their user.
    fn has_room(&self, state: &QueueState, user: u64, most_of_user: usize) -> bool {
        state.running < self.max_running && state.running_of(user) < most_of_user
    }

    fn max_of_user(&self, own: Option<usize>) -> usize {
        own.map_or(self.max_running_per_user, |most| {
            most.clamp(1, self.max_running_per_user)
        })
    }

    /// Changes the state with `free`, and then gives a place to the waiter whose turn it is, if
    /// there is a place for it. Returns whether a waiter has got a place.
    fn serve_next(self: &Arc<Self>, free: impl FnOnce(&mut QueueState)) -> bool {
        let mut next = {
            let mut state = self.state.lock();
            free(&mut state);
            state.take_turn(self.max_running)
        };
        while let Some((user, waiter)) = next {
            // If the waiter gives up between this send and its next poll, the place is dropped with
            // the receiver, which serves the next waiter.
            let Err(mut place) = waiter.send(RunPlace::new(self, user)) else {
                return true;
            };
            // The waiter has given up. Dropping the returned place would serve the next waiter
            // recursively, so its drop is disarmed, and the loop serves that waiter.
            place.owner = None;
            let mut state = self.state.lock();
            state.give_back(user);
            next = state.take_turn(self.max_running);
        }
        false
    }
}

#[derive(Debug, Default)]
struct QueueState {
    /// Number of places that are taken. A place that is shared does not count.
    running: usize,
    /// Number of places that each user has, for users with at least one. Shared places count.
    running_by_user: HashMap<u64, usize>,
    waiting: usize,
    /// The waiters of each user.
    users: HashMap<u64, Sessions>,
    /// The keys of `users`, each once, in the order in which they are served.
    turns: VecDeque<u64>,
    last_number: u64,
    /// Mean time that the last places were held, in seconds.
    mean_seconds: Option<f64>,
}

/// The sessions of a user that wait.
#[derive(Debug, Default)]
struct Sessions {
    queues: HashMap<u64, VecDeque<Waiter>>,
    /// The keys of `queues`, each once, in the order in which they are served.
    turns: VecDeque<u64>,
    /// Limit on how many callers of the user run at the same time, as the latest waiter gave it.
    max_running: usize,
}

impl Sessions {
    fn push(&mut self, session: u64, waiter: Waiter) {
        let queue = self.queues.entry(session).or_default();
        if queue.is_empty() {
            self.turns.push_back(session);
        }
        queue.push_back(waiter);
    }

    /// Removes the waiter whose turn it is, and returns it.
    fn take_turn(&mut self) -> Option<Waiter> {
        let session = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&session)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&session);
        } else {
            self.turns.push_back(session);
        }
        next
    }

    /// Removes the waiter with this number. Returns whether it was there.
    fn remove(&mut self, session: u64, number: u64) -> bool {
        let Some(queue) = self.queues.get_mut(&session) else {
            return false;
        };
        let Ok(position) = queue.binary_search_by_key(&number, |waiter| waiter.number) else {
            return false;
        };
        queue.remove(position);
        if queue.is_empty() {
            self.queues.remove(&session);
            self.turns.retain(|turn| *turn != session);
        }
        true
    }
}

#[derive(Debug)]
struct Waiter {
    /// Number of the waiter. Later waiters have larger numbers.
    number: u64,
    place: oneshot::Sender<RunPlace>,
}

impl QueueState {
    fn running_of(&self, user: u64) -> usize {
        self.running_by_user.get(&user).copied().unwrap_or_default()
    }

    fn take(&mut self, user: u64) {
        self.running += 1;
        *self.running_by_user.entry(user).or_default() += 1;
    }

    fn give_back(&mut self, user: u64) {
        self.running -= 1;
        self.remove_from(user);
    }

    fn remove_from(&mut self, user: u64) {
        if let Some(running) = self.running_by_user.get_mut(&user) {
            *running -= 1;
            if *running == 0 {
                self.running_by_user.remove(&user);
            }
        }
    }

    fn waiting_of(&self, user: u64, session: u64) -> usize {
        let sessions = self.users.get(&user);
        let queue = sessions.and_then(|sessions| sessions.queues.get(&session));
        queue.map_or(0, VecDeque::len)
    }

    fn queue_up(
        &mut self,
        user: u64,
        session: u64,
        most_of_user: usize,
    ) -> (u64, oneshot::Receiver<RunPlace>) {
        let (sender, receiver) = oneshot::channel();
        self.last_number += 1;
        let waiter = Waiter {
            number: self.last_number,
            place: sender,
        };
        let sessions = self.users.entry(user).or_default();
        sessions.max_running = most_of_user;
        if sessions.queues.is_empty() {
            self.turns.push_back(user);
        }
        sessions.push(session, waiter);
        self.waiting += 1;
        (self.last_number, receiver)
    }

    /// Takes a place for the waiter whose turn it is, among the users who have not reached their
    /// limit. Returns `None` if there is no such waiter, or no free place.
    fn take_turn(&mut self, max_running: usize) -> Option<(u64, oneshot::Sender<RunPlace>)> {
        if self.running >= max_running {
            return None;
        }
        let may_have_more = |user: &u64| {
            let most = self
                .users
                .get(user)
                .map_or(0, |sessions| sessions.max_running);
            self.running_of(*user) < most
        };
        let position = self.turns.iter().position(may_have_more)?;
        let user = self.turns.remove(position)?;
        let sessions = self.users.get_mut(&user)?;
        let next = sessions.take_turn();
        if sessions.queues.is_empty() {
            self.users.remove(&user);
        } else {
            self.turns.push_back(user);
        }
        let waiter = next?;
        self.waiting -= 1;
        self.take(user);
        Some((user, waiter.place))
    }

    /// Removes a waiter. Does nothing if the waiter has got a place.
    fn give_up(&mut self, user: u64, session: u64, number: u64) {
        let Some(sessions) = self.users.get_mut(&user) else {
            return;
        };
        if !sessions.remove(session, number) {
            return;
        }
        self.waiting -= 1;
        if sessions.queues.is_empty() {
            self.users.remove(&user);
            self.turns.retain(|turn| *turn != user);
        }
    }

    fn note_duration(&mut self, held: Duration) {
        let seconds = held.as_secs_f64();
        let mean = self.mean_seconds.get_or_insert(seconds);
        *mean += (seconds - *mean) * WEIGHT_OF_LATEST;
    }

    /// Estimates how long a new waiter, behind all others, would wait for a place.
    fn estimated_wait(&self, max_running: usize) -> Duration {
        let rounds = (self.waiting + 1) as f64 / max_running as f64;
        let seconds = self.mean_seconds.unwrap_or(ASSUMED_SECONDS) * rounds;
        let (shortest, longest) = RETRY_SECONDS;
        Duration::from_secs_f64(seconds.clamp(shortest, longest))
    }
}

/// Removes a waiter when it is dropped. If a place was sent to it meanwhile, the place is in the
/// receiver, which is dropped, too.
struct WaitingGuard<'a> {
    shared: &'a Shared,
    user: u64,
    session: u64,
    number: u64,
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.give_up(self.user, self.session, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;

    use super::*;

    type Entering<'a> = Pin<Box<dyn Future<Output = Result<RunPlace>> + Send + 'a>>;

    /// The waiters in the order of their arrival, with the names of their sessions.
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
                Box::pin(async move { admission.enter_session(&session).await });
            assert!(entering.as_mut().now_or_never().is_none());
            self.waiting.push((session, entering));
        }

        /// Returns the first waiter that has got a place, or `None` if all wait.
        fn served(&mut self) -> Option<(char, RunPlace)> {
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

        /// Gives the place back again and again. Returns the names of the sessions that got it, in
        /// this order.
        fn served_one_after_another(&mut self, mut place: RunPlace) -> String {
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
        let first = admission.enter_session(&()).await.unwrap();
        let mut second = Box::pin(admission.enter_session(&()));
        assert!(second.as_mut().now_or_never().is_none());
        let refused = admission.enter_session(&()).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ResourceExhausted);
        assert_eq!(
            refused.message(),
            "too many queries: 1 running, 1 waiting; retry in about 2 s"
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
            let place = admission.enter_session(&()).await.unwrap();
            let mut queue = Queue::new(&admission, arrival);
            assert_eq!(queue.served_one_after_another(place), order, "{arrival}");
        }
    }

    #[tokio::test]
    async fn one_who_comes_later_waits_for_one_of_each_session_at_most() {
        let admission = Admission::new("queries", 1, 100);
        let place = admission.enter_session(&()).await.unwrap();
        let mut queue = Queue::new(&admission, "aaaaaaaabbbb");
        drop(place);
        let (_, place) = queue.served().unwrap();
        queue.add('c');
        assert_eq!(queue.served_one_after_another(place), "bacbababaaaa");
    }

    #[tokio::test]
    async fn one_who_gives_up_loses_its_turn_and_nobody_else_does() {
        let admission = Admission::new("queries", 1, 100);
        let place = admission.enter_session(&()).await.unwrap();
        let mut queue = Queue::new(&admission, "abcab");
        drop(queue.waiting.remove(1)); // the first of b, which has another one
        drop(queue.waiting.remove(1)); // the only one of c
        assert_eq!(queue.served_one_after_another(place), "aba");
        assert_eq!(admission.running(), 0);
    }

    #[tokio::test]
    async fn a_place_that_is_on_its_way_to_one_who_gives_up_goes_on_to_the_next() {
        let admission = Admission::new("queries", 1, 100);
        let place = admission.enter_session(&()).await.unwrap();
        let mut queue = Queue::new(&admission, "aab");
        drop(place);
        // A place was sent to this waiter, which has not looked yet.
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
        let _place = admission.enter_session(&()).await.unwrap();
        let mut queue = Queue::new(&admission, "aa");
        let refused = admission.enter_session(&'a').await.unwrap_err();
        assert!(
            refused
                .message()
                .starts_with("too many queries of this session: 2 waiting"),
            "{refused}"
        );
        queue.add('b');
        let refused = admission.enter_session(&'c').await.unwrap_err();
        assert!(
            refused.message().contains("1 running, 3 waiting"),
            "{refused}"
        );
        drop(queue.waiting.remove(0));
        queue.add('a');
    }

    #[test]
    fn the_time_to_wait_follows_how_long_places_were_held_and_how_many_wait() {
        let mut state = QueueState::default();
        for _ in 0..50 {
            state.note_duration(Duration::from_secs(4));
        }
        state.waiting = 9;
        assert_eq!(state.estimated_wait(10).as_secs(), 4);
        assert_eq!(state.estimated_wait(2).as_secs(), 20);
        assert_eq!(state.estimated_wait(1000), Duration::from_millis(100));
        state.waiting = 99;
        assert_eq!(state.estimated_wait(1), Duration::from_secs(60));
        for _ in 0..50 {
            state.note_duration(Duration::from_millis(1));
        }
        assert!(state.estimated_wait(1) < Duration::from_millis(200));
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
                        let entering = admission.enter_session(&session);
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
        assert!(state.users.is_empty() && state.turns.is_empty());
        assert!(state.running_by_user.is_empty());
    }

    #[tokio::test]
    async fn a_user_has_a_limit_and_leaves_the_other_places_to_others() {
        let admission = Admission::new("queries", 3, 100).with_max_running_per_user(2);
        let enter = |user: char, session: u8| {
            let admission = &admission;
            Box::pin(async move {
                admission
                    .enter(&user, &(user, session), None)
                    .await
                    .unwrap()
            })
        };
        let first = enter('a', 1).await;
        let _second = enter('a', 2).await;
        let mut third = enter('a', 3);
        assert!(third.as_mut().now_or_never().is_none());
        assert!(admission.try_enter(&'a', None).is_none());
        // One place is free nevertheless.
        assert!(!admission.is_full());
        let of_other = enter('b', 1).await;
        let mut waits = enter('b', 2);
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(admission.is_full());
        // The place that the other user returns goes to the other user, because the first user has
        // reached its limit.
        drop(of_other);
        assert!(third.as_mut().now_or_never().is_none());
        let of_other = waits.await;
        drop(first);
        let third = third.await;
        drop((third, of_other));
        assert_eq!(admission.running(), 1);
    }

    #[tokio::test]
    async fn a_users_own_limit_is_below_that_of_all() {
        let admission = Admission::new("queries", 9, 100).with_max_running_per_user(2);
        let enter = |most: usize| {
            let admission = &admission;
            Box::pin(async move { admission.enter(&'a', &1, Some(most)).await.unwrap() })
        };
        let first = enter(1).await;
        let mut waits = enter(1);
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(admission.try_enter(&'a', Some(1)).is_none());
        // Other users have the common limit.
        let _other = admission.try_enter(&'b', None).unwrap();
        drop(first);
        let _first = waits.await;
        let _second = enter(5).await;
        assert!(admission.try_enter(&'a', Some(5)).is_none());
    }

    #[tokio::test]
    async fn a_shared_place_serves_another_user_and_counts_for_its_own() {
        let admission = Admission::new("queries", 1, 100).with_max_running_per_user(1);
        let mut first = admission.enter_session(&'a').await.unwrap();
        let mut same_user = Box::pin(admission.enter_session(&'a'));
        let mut other_user = Box::pin(admission.enter_session(&'b'));
        assert!(same_user.as_mut().now_or_never().is_none());
        assert!(other_user.as_mut().now_or_never().is_none());
        first.share();
        first.share();
        assert!(same_user.as_mut().now_or_never().is_none());
        let other = other_user.await.unwrap();
        assert!(!admission.has_free_place());
        // The user of the shared place may have another one now, but no place is free.
        assert!(!first.give_back());
        assert!(same_user.as_mut().now_or_never().is_none());
        assert!(other.give_back());
        let second = same_user.await.unwrap();
        assert!(!second.give_back());
        assert_eq!(admission.running(), 0);
        assert!(admission.shared.state.lock().running_by_user.is_empty());
    }

    #[tokio::test]
    async fn users_are_served_in_turn_however_many_sessions_they_have() {
        let admission = Admission::new("queries", 1, 100);
        let mut place = admission.enter_session(&()).await.unwrap();
        let mut waiting = Vec::new();
        for (user, session) in [('a', 1), ('a', 2), ('a', 3), ('a', 1), ('b', 1), ('b', 1)] {
            let admission = &admission;
            let mut entering: Entering<'_> =
                Box::pin(async move { admission.enter(&user, &session, None).await });
            assert!(entering.as_mut().now_or_never().is_none());
            waiting.push(((user, session), entering));
        }
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(place);
            let served = waiting
                .iter_mut()
                .enumerate()
                .find_map(|(position, (_, entering))| {
                    let entered = entering.as_mut().now_or_never()?;
                    Some((position, entered.unwrap()))
                });
            let (position, next) = served.unwrap();
            order.push(waiting.remove(position).0);
            place = next;
        }
        let expected = [('a', 1), ('b', 1), ('a', 2), ('b', 1), ('a', 3), ('a', 1)];
        assert_eq!(order, expected);
    }
}
