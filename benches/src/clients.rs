use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use futures::future::BoxFuture;
use tokio::task::JoinSet;

/// A client that can ask questions.
pub trait Ask: Send + 'static {
    /// Asks the question with this number, and reads the answer to its end. Returns the kind of the
    /// question.
    fn ask(&mut self, number: usize) -> (&'static str, BoxFuture<'_, Result<()>>);
}

/// A group of clients that ask at the same time.
#[derive(Debug)]
pub struct Clients<C> {
    clients: Vec<C>,
    /// The number of questions that have been asked.
    questions_asked: usize,
}

/// The latencies and failures of some questions.
#[derive(Debug, Default)]
pub struct Answers {
    /// The latencies in milliseconds, by the kind of question.
    pub latencies_ms: BTreeMap<&'static str, Vec<f64>>,
    /// The errors of the questions that failed.
    pub failures: Vec<Error>,
    /// The time from the first question to the last answer.
    pub total: Duration,
}

impl<C: Ask> Clients<C> {
    /// Creates a group of these clients.
    pub fn new(clients: Vec<C>) -> Self {
        Self {
            clients,
            questions_asked: 0,
        }
    }

    /// Lets each client ask `questions` questions. No two questions get the same number.
    ///
    /// # Errors
    /// Returns an error if a client panics.
    pub async fn ask(&mut self, questions: usize) -> Result<Answers> {
        let started = Instant::now();
        let mut asking = JoinSet::new();
        for mut client in std::mem::take(&mut self.clients) {
            let numbers = self.questions_asked..self.questions_asked + questions;
            self.questions_asked = numbers.end;
            asking.spawn(async move {
                let mut answers = Answers::default();
                for number in numbers {
                    answers.add(&mut client, number).await;
                }
                (client, answers)
            });
        }
        let mut all = Answers::default();
        while let Some(ended) = asking.join_next().await {
            let (client, answers) = ended?;
            self.clients.push(client);
            all.extend(answers);
        }
        all.total = started.elapsed();
        Ok(all)
    }
}

impl Answers {
    async fn add(&mut self, client: &mut impl Ask, number: usize) {
        let started = Instant::now();
        let (kind, answer) = client.ask(number);
        match answer.await {
            Ok(()) => {
                let took = started.elapsed().as_secs_f64() * 1e3;
                self.latencies_ms.entry(kind).or_default().push(took);
            }
            Err(error) => self.failures.push(error),
        }
    }

    fn extend(&mut self, other: Self) {
        for (kind, latencies) in other.latencies_ms {
            self.latencies_ms.entry(kind).or_default().extend(latencies);
        }
        self.failures.extend(other.failures);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    struct Odd;

    impl Ask for Odd {
        fn ask(&mut self, number: usize) -> (&'static str, BoxFuture<'_, Result<()>>) {
            let answer = async move {
                anyhow::ensure!(number != 7, "seven");
                Ok(())
            };
            let kind = if number.is_multiple_of(2) {
                "even"
            } else {
                "odd"
            };
            (kind, answer.boxed())
        }
    }

    #[tokio::test]
    async fn every_question_is_answered_or_has_failed() {
        let mut clients = Clients::new(vec![Odd, Odd, Odd]);
        for failed in [1, 0] {
            let answers = clients.ask(4).await.unwrap();
            let count = |kind: &str| answers.latencies_ms[kind].len();
            assert_eq!((count("even"), count("odd")), (6, 6 - failed));
            assert_eq!(answers.failures.len(), failed);
        }
    }
}
