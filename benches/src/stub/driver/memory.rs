use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::RwLock;
use tonic::codegen::http::Extensions;
use tonic::metadata::MetadataMap;
use tonic::{Code, Response, Status};

/// The answers to one kind of call, by question.
#[derive(Debug)]
pub(super) struct Memory<T> {
    answers: RwLock<HashMap<Bytes, Remembered<T>>>,
}

/// An answer with its headers, or a refusal.
type Remembered<T> = Result<(MetadataMap, T), Status>;

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self {
            answers: RwLock::default(),
        }
    }
}

impl<T: Clone> Memory<T> {
    /// Returns the remembered answer to a question. If there is none, `ask` asks the gateway.
    ///
    /// If several calls ask the same question at once, all get the answer that arrived first. A
    /// gateway's refusal to serve a kind of call is remembered, too, but no other error is.
    pub(super) async fn answer(
        &self,
        question: Bytes,
        ask: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<Response<T>, Status> {
        let known = self.answers.read().get(&question).cloned();
        let remembered = match known {
            Some(known) => known,
            None => {
                let answer = match ask.await {
                    Ok(response) => {
                        let (headers, message, _) = response.into_parts();
                        Ok((headers, message))
                    }
                    Err(status) if status.code() == Code::Unimplemented => Err(status),
                    Err(status) => return Err(status),
                };
                let mut answers = self.answers.write();
                answers.entry(question).or_insert(answer).clone()
            }
        };
        let (headers, message) = remembered?;
        Ok(Response::from_parts(
            headers,
            message,
            Extensions::default(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn only_answers_and_refusals_are_remembered() {
        let memory = Memory::default();
        let ask = |question: &'static str, answer: Result<u8, Status>| {
            let answering = async { answer.map(Response::new) };
            let answered = memory.answer(Bytes::from_static(question.as_bytes()), answering);
            let answered = answered.now_or_never().unwrap();
            answered.map(Response::into_inner).map_err(|it| it.code())
        };
        assert_eq!(
            ask("a", Err(Status::unavailable("later"))),
            Err(Code::Unavailable)
        );
        assert_eq!(ask("a", Ok(1)), Ok(1));
        assert_eq!(ask("a", Ok(2)), Ok(1));
        assert_eq!(ask("b", Ok(2)), Ok(2));
        assert_eq!(
            ask("c", Err(Status::unimplemented("no"))),
            Err(Code::Unimplemented)
        );
        assert_eq!(ask("c", Ok(3)), Err(Code::Unimplemented));
    }
}
