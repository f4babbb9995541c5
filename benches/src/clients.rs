use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use futures::future::BoxFuture;
use tokio::task::JoinSet;

/// More questions than a client asks in any time that is measured.
const MANY: usize = 1 << 32;

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
    /// The number of the next question.
    next_number: usize,
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
            next_number: 0,
        }
    }

    /// Lets each client ask `questions` questions. No two questions get the same number.
    ///
    /// # Errors
    /// Returns an error if a client panics.
    pub async fn ask(&mut self, questions: usize) -> Result<Answers> {
        self.ask_questions(questions, Duration::MAX, 1).await
    }

    /// Lets each client ask questions for this time, and at least `least` of them. No two questions
    /// get the same number.
    ///
    /// # Errors
    /// Returns an error if a client panics.
    pub async fn ask_for(&mut self, time: Duration, least: usize) -> Result<Answers> {
        self.ask_questions(MANY, time, least).await
    }

    /// Lets each client ask up to `questions` questions, until the time is over. Each client asks
    /// at least one. No two questions get the same number.
    ///
    /// # Errors
    /// Returns an error if a client panics.
    pub async fn ask_within(&mut self, questions: usize, time: Duration) -> Result<Answers> {
        self.ask_questions(questions, time, 1).await
    }

    async fn ask_questions(
        &mut self,
        questions: usize,
        time: Duration,
        least: usize,
    ) -> Result<Answers> {
        let started = Instant::now();
        let mut asking = JoinSet::new();
        for mut client in std::mem::take(&mut self.clients) {
            let numbers = self.next_number..self.next_number + questions;
            self.next_number = numbers.end;
            asking.spawn(async move {
                let mut answers = Answers::default();
                for (asked, number) in (1..).zip(numbers) {
                    answers.add(&mut client, number).await;
                    if asked >= least && started.elapsed() >= time {
                        break;
                    }
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

    /// Returns the clients.
    pub fn into_clients(self) -> Vec<C> {
        self.clients
    }
}

impl Answers {
    /// Returns the latencies of all kinds of questions, in milliseconds.
    ///
    /// # Errors
    /// Returns the first failure, if a question has failed.
    pub fn all_latencies_ms(self) -> Result<Vec<f64>> {
        match self.failures.into_iter().next() {
            Some(failure) => Err(failure),
            None => Ok(self.latencies_ms.into_values().flatten().collect()),
        }
    }

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

    /// Notes the numbers of its questions.
    struct Noting(Vec<usize>);

    impl Ask for Noting {
        fn ask(&mut self, number: usize) -> (&'static str, BoxFuture<'_, Result<()>>) {
            self.0.push(number);
            ("noted", async { Ok(()) }.boxed())
        }
    }

    #[tokio::test]
    async fn no_two_questions_get_the_same_number_whatever_ends_the_asking() {
        let mut clients = Clients::new(vec![Noting(Vec::new()), Noting(Vec::new())]);
        let once = clients.ask_for(Duration::ZERO, 1).await.unwrap();
        assert_eq!(once.latencies_ms["noted"].len(), 2);
        let cycle = clients.ask_for(Duration::ZERO, 10).await.unwrap();
        assert_eq!(cycle.latencies_ms["noted"].len(), 20);
        let twice = clients.ask_within(2, Duration::MAX).await.unwrap();
        assert_eq!(twice.latencies_ms["noted"].len(), 4);
        clients.ask(1).await.unwrap();
        let clients = clients.into_clients().into_iter();
        let mut numbers: Vec<usize> = clients.flat_map(|client| client.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 28);
    }
}
