use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use futures::StreamExt;
use tokio::task::JoinSet;
use volary_planner::gather::GatherExec;

use super::ReadOutcome;
use super::stubs::StubCluster;

/// The result of one partition.
struct PartitionRead {
    partition: usize,
    first_poll: FirstPoll,
    rows: u64,
}

/// The first poll of a partition. It opens all streams of the partition, one after another.
#[derive(Debug, Clone, Copy, Default)]
struct FirstPoll {
    began: Duration,
    ended: Duration,
}

/// Reads as [`super::read`] describes.
pub(super) async fn read(cluster: &StubCluster, partitions: usize) -> Result<ReadOutcome> {
    let started = Instant::now();
    // Stubs ignore the fragment.
    let fragment: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(cluster.schema()));
    let gather = GatherExec::new(
        Arc::clone(&fragment),
        &fragment,
        cluster.targets(),
        None,
        partitions,
        "it is a benchmark's".into(),
    );
    let task = cluster.task();
    let mut reading = JoinSet::new();
    for partition in 0..partitions {
        let rows = gather.execute(partition, Arc::clone(&task))?;
        reading.spawn_on(read_partition(partition, rows, started), cluster.cpu());
    }
    let mut first_polls = vec![FirstPoll::default(); partitions];
    let mut rows = 0;
    while let Some(read) = reading.join_next().await {
        let read = read??;
        first_polls[read.partition] = read.first_poll;
        rows += read.rows;
    }
    let total = started.elapsed();
    let opened: Vec<_> = gather
        .reports()
        .all()
        .iter()
        .map(|report| report.open)
        .collect();
    Ok(ReadOutcome {
        open: last_opened_at(&opened, &first_polls).min(total),
        total,
        rows,
    })
}

async fn read_partition(
    partition: usize,
    mut batches: SendableRecordBatchStream,
    started: Instant,
) -> Result<PartitionRead> {
    let began = started.elapsed();
    let first = futures::poll!(batches.next());
    let ended = started.elapsed();
    let mut rows = 0;
    let mut next = match first {
        std::task::Poll::Ready(next) => next,
        std::task::Poll::Pending => batches.next().await,
    };
    while let Some(batch) = next {
        rows += batch?.num_rows() as u64;
        next = batches.next().await;
    }
    Ok(PartitionRead {
        partition,
        first_poll: FirstPoll { began, ended },
        rows,
    })
}

/// Returns the time at which the last stream was open. For each worker, `opened` is the time from
/// the first poll of its stream until the stream was open. The first poll of a partition polls its
/// streams one after another, in the order of the workers. Each stream is assumed to take an equal
/// part of that poll.
fn last_opened_at(opened: &[Duration], first_polls: &[FirstPoll]) -> Duration {
    let partitions = first_polls.len();
    let last_of_partitions = first_polls.iter().enumerate().map(|(partition, poll)| {
        let first = partition * opened.len() / partitions;
        let end = (partition + 1) * opened.len() / partitions;
        let polled = poll.ended.saturating_sub(poll.began);
        let count = (end - first).max(1) as f64;
        opened[first..end]
            .iter()
            .enumerate()
            .map(|(place, took)| poll.began + polled.mul_f64(place as f64 / count) + *took)
            .max()
    });
    last_of_partitions.flatten().max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_open_so_long_after_their_own_turn_in_the_first_poll() {
        let ms = Duration::from_millis;
        let poll = |began, ended| FirstPoll {
            began: ms(began),
            ended: ms(ended),
        };
        // The streams of the first partition are first polled at 1 and 5 ms, those of the second at
        // 2 and 4 ms.
        let polls = [poll(1, 9), poll(2, 6)];
        assert_eq!(
            last_opened_at(&[ms(10), ms(3), ms(1), ms(2)], &polls),
            ms(11)
        );
        assert_eq!(
            last_opened_at(&[ms(1), ms(1), ms(1), ms(20)], &polls),
            ms(24)
        );
        assert_eq!(last_opened_at(&[], &polls), Duration::ZERO);
        // There are more partitions than workers.
        assert_eq!(last_opened_at(&[ms(3)], &polls), ms(5));
    }
}
