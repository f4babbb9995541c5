use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use volary_flight_proto::ids::QueryId;
use volary_node::memory::MIN_ENDED_BYTES;
use volary_node::runtimes::RunningPlan;

/// The running fragments. They are listed so that the largest one can be ended. Clones share the
/// list.
#[derive(Debug, Clone, Default)]
pub struct RunningFragments(Arc<Mutex<Fragments>>);

#[derive(Debug, Default)]
struct Fragments {
    last_number: u64,
    by_number: HashMap<u64, (QueryId, RunningPlan)>,
}

/// A fragment that is listed until this value is dropped.
#[derive(Debug)]
pub(super) struct ListedFragment {
    fragments: RunningFragments,
    number: u64,
}

impl RunningFragments {
    /// Adds a fragment of the query to the list.
    pub(super) fn list(&self, query: QueryId, plan: RunningPlan) -> ListedFragment {
        let mut fragments = self.0.lock();
        fragments.last_number += 1;
        let number = fragments.last_number;
        fragments.by_number.insert(number, (query, plan));
        ListedFragment {
            fragments: self.clone(),
            number,
        }
    }

    /// Ends the fragment whose operators hold the most memory. Fragments that hold too little are
    /// not ended. Returns the query of the fragment, and the bytes that the fragment held.
    pub fn end_largest(&self, why: &str) -> Option<(QueryId, usize)> {
        let fragments = self.0.lock();
        let mut largest: Vec<_> = fragments
            .by_number
            .values()
            .map(|(query, plan)| (plan.held_bytes(), *query, plan))
            .filter(|(held, ..)| *held >= MIN_ENDED_BYTES)
            .collect();
        largest.sort_by_key(|(held, ..)| *held);
        let ended = largest.into_iter().rev().find(|(.., plan)| plan.end(why));
        ended.map(|(held, query, _)| (query, held))
    }
}

impl Drop for ListedFragment {
    fn drop(&mut self) {
        self.fragments.0.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::datatypes::Schema;
    use datafusion::execution::TaskContext;
    use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::{StreamExt, stream};
    use volary_exec::run::make_runnable;
    use volary_flight_proto::{Error, ErrorCode};
    use volary_node::memory;
    use volary_node::runtimes::{OwnedRuntimes, PlanOwner};

    use super::*;

    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn the_largest_fragment_is_ended_and_no_small_one() {
        let runtimes = OwnedRuntimes::start(Some(1)).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let env = memory::runtime_env(&memory::Config::default(), directory.path(), 0).unwrap();
        let schema = Arc::new(Schema::empty());
        let fragment = |held: usize| -> (PlanOwner, MemoryReservation) {
            let plan = Arc::new(EmptyExec::new(Arc::clone(&schema)));
            let (_, end) =
                make_runnable(plan, &TaskContext::default(), runtimes.handles()).unwrap();
            let consumer = MemoryConsumer::new("Sort");
            let reservation = end.start(|| consumer.register(&env.memory_pool));
            reservation.grow(held);
            (end, reservation)
        };
        let fragments = RunningFragments::default();
        let [small, large, larger] = [MIB - 1, 2 * MIB, 3 * MIB].map(fragment);
        let queries = [QueryId::new(), QueryId::new(), QueryId::new()];
        let _listed = [&small, &large, &larger]
            .into_iter()
            .zip(queries)
            .map(|((end, _), query)| fragments.list(query, end.running_plan()))
            .collect::<Vec<_>>();
        assert_eq!(
            fragments.end_largest("too much"),
            Some((queries[2], 3 * MIB))
        );
        // The ended fragment gives no rows, and its reader is told why.
        let rows = RecordBatchStreamAdapter::new(schema, stream::pending());
        let mut rows = runtimes
            .handles()
            .stream_on_cpu(Box::pin(rows), Duration::MAX, larger.0);
        let error = Error::from(rows.next().await.unwrap().unwrap_err());
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        assert!(error.message().contains("too much"), "{error}");
        assert_eq!(
            fragments.end_largest("too much"),
            Some((queries[1], 2 * MIB))
        );
        assert_eq!(fragments.end_largest("too much"), None);
    }
}
