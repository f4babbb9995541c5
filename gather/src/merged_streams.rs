use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::{FuturesUnordered, StreamExt, StreamFuture};

/// Maximum number of items of one stream before the other streams have their turn.
const MAX_IN_A_ROW: usize = 16;

/// The items of several streams, as they come. A stream that has more items is read on for a while:
/// its data is in the processor's caches, and would be gone from them after thousands of other
/// streams were read.
pub struct MergedStreams<S> {
    waiting: FuturesUnordered<StreamFuture<S>>,
    /// The stream that was read last, and the number of its items that were read in a row.
    reading: Option<(S, usize)>,
}

impl<S: Stream + Unpin> MergedStreams<S> {
    /// Creates the merged stream. The streams are first polled in their order.
    pub fn new(streams: impl IntoIterator<Item = S>) -> Self {
        Self {
            waiting: streams.into_iter().map(StreamExt::into_future).collect(),
            reading: None,
        }
    }
}

impl<S: Stream + Unpin> Stream for MergedStreams<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let this = &mut *self;
        if let Some((mut stream, items)) = this.reading.take() {
            let more = (items < MAX_IN_A_ROW).then(|| stream.poll_next_unpin(cx));
            match more {
                Some(Poll::Ready(Some(item))) => {
                    this.reading = Some((stream, items + 1));
                    return Poll::Ready(Some(item));
                }
                Some(Poll::Ready(None)) => {}
                Some(Poll::Pending) | None => this.waiting.push(stream.into_future()),
            }
        }
        loop {
            match ready!(this.waiting.poll_next_unpin(cx)) {
                Some((Some(item), stream)) => {
                    this.reading = Some((stream, 1));
                    return Poll::Ready(Some(item));
                }
                Some((None, _)) => {}
                None => return Poll::Ready(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::channel::mpsc;
    use futures::stream;

    use super::*;

    #[tokio::test]
    async fn a_stream_is_read_on_and_all_have_their_turn() {
        let numbers = |stream: usize, count: usize| stream::iter(vec![stream; count]).boxed();
        let streams = [
            numbers(0, 40),
            numbers(1, 3),
            stream::empty().boxed(),
            numbers(2, 20),
        ];
        let read: Vec<usize> = MergedStreams::new(streams).collect().await;
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for stream in read {
            match runs.last_mut() {
                Some((last, items)) if *last == stream => *items += 1,
                _ => runs.push((stream, 1)),
            }
        }
        assert_eq!(runs, [(0, 16), (1, 3), (2, 16), (0, 16), (2, 4), (0, 8)]);
    }

    #[tokio::test]
    async fn a_stream_that_has_nothing_yet_keeps_nobody_waiting() {
        let (sender, slow) = mpsc::unbounded();
        let mut read = MergedStreams::new([slow.boxed(), stream::iter(0..2).boxed()]);
        sender.unbounded_send(7).unwrap();
        assert_eq!(read.next().await, Some(7));
        assert_eq!(read.next().await, Some(0));
        assert_eq!(read.next().await, Some(1));
        assert!(read.next().now_or_never().is_none());
        sender.unbounded_send(8).unwrap();
        assert_eq!(read.next().await, Some(8));
        drop(sender);
        assert_eq!(read.next().await, None);
    }
}
