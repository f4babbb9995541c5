use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::{Stream, StreamExt};

/// A stream that holds resources until its end. It drops the stream and then the resources before
/// its reader sees the end or the first error. So a client that has seen the end of its statement
/// can start the next one in the place of the first.
#[derive(Debug)]
pub struct HeldStream<S, H> {
    /// The stream and what it holds. They are dropped in this order. It is `None` after the end.
    open: Option<(S, H)>,
}

impl<S, H> HeldStream<S, H> {
    /// Creates a stream of the items of `stream` that holds `held`.
    pub fn new(stream: S, held: H) -> Self {
        Self {
            open: Some((stream, held)),
        }
    }
}

impl<S, H, T, E> Stream for HeldStream<S, H>
where
    S: Stream<Item = Result<T, E>> + Unpin,
    H: Unpin,
{
    type Item = Result<T, E>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some((stream, _)) = &mut self.open else {
            return Poll::Ready(None);
        };
        let polled = stream.poll_next_unpin(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.open = None;
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::executor::block_on;
    use futures::stream;

    use super::*;

    /// Reads a stream to its end or its first error. Returns whether the resources were held after
    /// each item, and at the end.
    fn read(items: Vec<Result<u8, u8>>) -> Vec<bool> {
        let resource = Arc::new(());
        let mut held = HeldStream::new(stream::iter(items), Arc::clone(&resource));
        let mut is_held = Vec::new();
        while let Some(item) = block_on(held.next()) {
            is_held.push(Arc::strong_count(&resource) == 2);
            if item.is_err() {
                break;
            }
        }
        is_held.push(Arc::strong_count(&resource) == 2);
        assert!(block_on(held.next()).is_none());
        is_held
    }

    #[test]
    fn resources_are_held_until_the_reader_sees_the_end() {
        assert_eq!(read(vec![Ok(1), Ok(2)]), [true, true, false]);
        assert_eq!(read(vec![Ok(1), Err(2), Ok(3)]), [true, false, false]);
        assert_eq!(read(vec![]), [false]);
    }
}
