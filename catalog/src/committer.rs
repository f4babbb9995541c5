//! Changes that wait while the store writes are committed together, with one transaction and one
//! fsync. So many clients that write at the same time do not wait for each other's fsyncs.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::{Mutex, oneshot};
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
    waiting: parking_lot::Mutex<VecDeque<Box<dyn WaitingChange>>>,
    /// Whoever holds it commits changes.
    turn: Mutex<()>,
}

impl fmt::Debug for Committer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Committer")
            .field("store", &self.store)
            .field("waiting", &self.waiting.lock().len())
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
            waiting: parking_lot::Mutex::default(),
            turn: Mutex::default(),
        }
    }

    /// Returns the state that was last committed.
    pub(super) fn state(&self) -> Arc<CatalogState> {
        self.state.load_full()
    }

    /// Returns the number of changes that wait for somebody to commit them.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Returns the store.
    #[cfg(test)]
    pub(super) fn store(&self) -> &Arc<dyn MetadataStore> {
        &self.store
    }

    /// Commits the change that `decide` drafts. `decide` is called again if the store was changed
    /// by somebody else, or if other changes of the group are refused.
    ///
    /// # Errors
    /// The errors of `decide` and of the store, and `UNAVAILABLE` if others change the store all
    /// the time.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        decide: impl Fn(&mut Draft) -> Result<T> + Send + 'static,
        may_use_ballast: bool,
    ) -> Result<T> {
        let (sender, mut receiver) = oneshot::channel();
        self.waiting.lock().push_back(Box::new(Change {
            decide,
            may_use_ballast,
            decided: None,
            sender,
        }));
        let _turn = self.turn.lock().await;
        loop {
            match receiver.try_recv() {
                Ok(outcome) => return outcome,
                Err(oneshot::error::TryRecvError::Empty) => self.commit_next().await,
                Err(oneshot::error::TryRecvError::Closed) => {
                    return Err(shutdown_error());
                }
            }
        }
    }

    /// Commits the changes that have waited longest.
    async fn commit_next(&self) {
        let mut group: Vec<_> = {
            let mut waiting = self.waiting.lock();
            let count = waiting.len().min(MAX_GROUP);
            waiting.drain(..count).collect()
        };
        let may_use_ballast = group.iter().all(|change| change.may_use_ballast());
        let mut failure = self.commit(&mut group, may_use_ballast).await.err();
        if !may_use_ballast
            && let Some(full) = failure.take_if(|it| it.code() == ErrorCode::ResourceExhausted)
        {
            // On a full disk, the others are made alone.
            let (mut others, refused): (Vec<_>, Vec<_>) = group
                .into_iter()
                .partition(|change| change.may_use_ballast());
            answer_all(refused, Some(full));
            failure = self.commit(&mut others, true).await.err();
            group = others;
        }
        answer_all(group, failure);
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

fn answer_all(group: Vec<Box<dyn WaitingChange>>, failure: Option<Error>) {
    let failure = failure.map(Arc::new);
    for change in group {
        change.answer(failure.as_ref().map(Error::shared));
    }
}

/// Returns the error of a change that was not made because the gateway stops.
pub(super) fn shutdown_error() -> Error {
    Error::new(ErrorCode::Cancelled, "the gateway is shutting down")
        .with_sqlstate(SqlState::AdminShutdown)
}
