//! Changes that wait while the store writes are committed together, with one transaction and one
//! fsync. So many clients that write at the same time do not wait for each other's fsyncs.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};

use super::draft::Draft;
use super::state::CatalogState;
use super::store::{CommitError, MetadataStore};

/// Maximum number of attempts at a group of changes. They are decided again if somebody else
/// changed the store in the meantime.
const MAX_ATTEMPTS: usize = 10;
/// Maximum number of changes that are committed together.
const MAX_GROUP: usize = 1024;

/// The store, the state that was last committed to it, and the changes that wait for their commit.
pub(super) struct Committer {
    store: Arc<dyn MetadataStore>,
    state: ArcSwap<CatalogState>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Box<dyn WaitingChange>>,
    /// Says whether a thread commits what waits.
    is_served: bool,
}

/// The duty to commit what waits, until nothing does. If it is dropped before, because the runtime
/// stops, what waits is given up.
struct Service {
    committer: Arc<Committer>,
    is_done: bool,
}

impl fmt::Debug for Committer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Committer")
            .field("store", &self.store)
            .field("waiting", &self.queue.lock().waiting.len())
            .finish_non_exhaustive()
    }
}

/// A change that waits for its commit.
trait WaitingChange: Send {
    /// Decides the change on a draft. Returns whether the draft has the change. If not, the draft
    /// must be rolled back.
    fn decide(&mut self, draft: &mut Draft) -> bool;

    /// Returns whether the store may use its ballast for the change if the disk is full.
    fn may_use_ballast(&self) -> bool;

    /// Answers whoever wants the change: with `failure` if the draft could not be committed, and
    /// otherwise with what was decided.
    fn answer(self: Box<Self>, failure: Option<Error>);
}

/// The answer to whoever wants a change.
struct Answer {
    change: Box<dyn WaitingChange>,
    failure: Option<Error>,
}

impl Answer {
    fn send(self) {
        self.change.answer(self.failure);
    }
}

struct Change<T, F> {
    decide: F,
    may_use_ballast: bool,
    decided: Option<Result<T>>,
    sender: oneshot::Sender<Result<T>>,
}

impl<T, F> WaitingChange for Change<T, F>
where
    T: Send,
    F: Fn(&mut Draft) -> Result<T> + Send,
{
    fn decide(&mut self, draft: &mut Draft) -> bool {
        // A panic must not take the other changes of the group with it.
        let decided = catch_unwind(AssertUnwindSafe(|| (self.decide)(draft)))
            .unwrap_or_else(|_| Err(Error::internal("a change of the catalog panicked")));
        let has_change = decided.is_ok();
        self.decided = Some(decided);
        has_change
    }

    fn may_use_ballast(&self) -> bool {
        self.may_use_ballast
    }

    fn answer(self: Box<Self>, failure: Option<Error>) {
        // What was decided relies on the other changes of the group, so it does not count if they
        // were not made.
        let outcome = match (failure, self.decided) {
            (Some(failure), _) => Err(failure),
            (None, Some(decided)) => decided,
            (None, None) => Err(Error::internal("a change of the catalog was not decided")),
        };
        // The client may have gone away.
        let _ = self.sender.send(outcome);
    }
}

impl Committer {
    /// Creates a committer for a store with this content.
    pub(super) fn new(store: Arc<dyn MetadataStore>, state: CatalogState) -> Self {
        Self {
            store,
            state: ArcSwap::from_pointee(state),
            queue: Mutex::default(),
        }
    }

    /// Returns the state that was last committed.
    pub(super) fn state(&self) -> Arc<CatalogState> {
        self.state.load_full()
    }

    /// Returns the number of changes that wait for somebody to commit them.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.queue.lock().waiting.len()
    }

    /// Returns the store.
    #[cfg(test)]
    pub(super) fn store(&self) -> &Arc<dyn MetadataStore> {
        &self.store
    }

    /// Commits the change that `decide` drafts. The change is made even if the caller drops the
    /// future. `decide` is called again if the store was changed by somebody else, or if other
    /// changes of the group are refused.
    ///
    /// # Errors
    /// The errors of `decide` and of the store, and `UNAVAILABLE` if others change the store all
    /// the time.
    pub(super) async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        decide: impl Fn(&mut Draft) -> Result<T> + Send + 'static,
        may_use_ballast: bool,
    ) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        let is_served = {
            let mut queue = self.queue.lock();
            queue.waiting.push_back(Box::new(Change {
                decide,
                may_use_ballast,
                decided: None,
                sender,
            }));
            std::mem::replace(&mut queue.is_served, true)
        };
        if !is_served {
            // One thread decides, writes and syncs. With tasks for some of that, each commit would
            // wait for several threads to wake up.
            let service = Service {
                committer: Arc::clone(self),
                is_done: false,
            };
            let runtime = Handle::current();
            runtime
                .clone()
                .spawn_blocking(move || service.run(&runtime));
        }
        receiver.await.unwrap_or_else(|_| Err(shutdown_error()))
    }

    /// Takes the changes that have waited longest. If there are none, the next change needs another
    /// thread.
    fn take_group(&self) -> Option<Vec<Box<dyn WaitingChange>>> {
        let mut queue = self.queue.lock();
        let count = queue.waiting.len().min(MAX_GROUP);
        queue.is_served = count > 0;
        (count > 0).then(|| queue.waiting.drain(..count).collect())
    }

    /// Commits a group, and returns the answers to its changes.
    async fn commit_group(&self, mut group: Vec<Box<dyn WaitingChange>>) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(group.len());
        let may_use_ballast = group.iter().all(|change| change.may_use_ballast());
        let mut failure = self.commit(&mut group, may_use_ballast).await.err();
        if !may_use_ballast
            && let Some(full) = failure.take_if(|it| it.code() == ErrorCode::ResourceExhausted)
        {
            // On a full disk, the others are made alone.
            let (mut others, refused): (Vec<_>, Vec<_>) = group
                .into_iter()
                .partition(|change| change.may_use_ballast());
            answers.extend(same_answers(refused, Some(full)));
            failure = self.commit(&mut others, true).await.err();
            group = others;
        }
        answers.extend(same_answers(group, failure));
        answers
    }

    async fn commit(
        &self,
        group: &mut [Box<dyn WaitingChange>],
        may_use_ballast: bool,
    ) -> Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            let mut draft = Draft::new(&self.state.load());
            for change in &mut *group {
                let savepoint = draft.savepoint();
                if !change.decide(&mut draft) {
                    draft.roll_back(savepoint);
                }
            }
            let Some((expected, changes)) = draft.transaction()? else {
                return Ok(());
            };
            let committed = if may_use_ballast {
                self.store.commit_with_ballast(expected, changes).await
            } else {
                self.store.commit(expected, changes).await
            };
            match committed {
                Ok(version) => {
                    self.state.store(Arc::new(draft.into_state(version)));
                    return Ok(());
                }
                Err(CommitError::Conflict { .. }) => {
                    // Another gateway was faster, or an earlier commit succeeded although the store
                    // reported an error.
                    if let Some(state) = CatalogState::load(&self.store.load().await?)? {
                        self.state.store(Arc::new(state));
                    }
                }
                Err(CommitError::Failed(error)) => return Err(error),
            }
        }
        Err(Error::unavailable(format!(
            "the catalog was changed by others {MAX_ATTEMPTS} times while this change was being made; retry"
        )))
    }
}

impl Service {
    /// Commits what waits, on a thread that may block.
    fn run(mut self, runtime: &Handle) {
        let mut next = self.committer.take_group();
        while let Some(group) = next.take() {
            let committing = self.committer.commit_group(group);
            let committing = AssertUnwindSafe(|| runtime.block_on(committing));
            let answers = catch_unwind(committing).unwrap_or_else(|_| {
                // Whoever waits for the group notices that it was given up.
                tracing::error!("committing changes of the catalog panicked; please report this");
                Vec::new()
            });
            next = self.committer.take_group();
            if next.is_none() {
                // Whoever is answered may close the catalog, and open its store again at once.
                self.is_done = true;
                drop(self);
                return answers.into_iter().for_each(Answer::send);
            }
            answers.into_iter().for_each(Answer::send);
        }
        self.is_done = true;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if !self.is_done {
            let mut queue = self.committer.queue.lock();
            queue.is_served = false;
            let given_up = std::mem::take(&mut queue.waiting);
            // Whoever waits is woken after the lock is released.
            drop(queue);
            drop(given_up);
        }
    }
}

/// Returns the answers to changes that have the same outcome.
fn same_answers(
    group: Vec<Box<dyn WaitingChange>>,
    failure: Option<Error>,
) -> impl Iterator<Item = Answer> {
    let failure = failure.map(Arc::new);
    group.into_iter().map(move |change| Answer {
        change,
        failure: failure.as_ref().map(Error::shared),
    })
}

/// Returns the error of a change that was not made because the gateway stops.
pub(super) fn shutdown_error() -> Error {
    Error::new(ErrorCode::Cancelled, "the gateway is shutting down")
        .with_sqlstate(SqlState::AdminShutdown)
}
