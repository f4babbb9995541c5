//! One statement.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, ErrorCode};

use super::{Issuer, Memory, StatementStatus};

/// Of a statement's text, so much is listed.
const MAX_TEXT_BYTES: usize = 4 * 1024;

/// What is done with a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It is parsed and planned.
    Planning,
    /// It waits for a place among those that run.
    Queued,
    /// It runs, or its rows are sent.
    Running,
}

impl State {
    /// Its name in system.queries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Planning => "planning",
            Self::Queued => "queued",
            Self::Running => "running",
        }
    }
}

#[derive(Debug)]
pub(super) struct Entry {
    issuer: Issuer,
    text: String,
    started: SystemTime,
    since: Instant,
    state: AtomicU8,
    sent_bytes: AtomicU64,
    memory: Mutex<Memory>,
    ended: CancellationToken,
    why: OnceLock<String>,
}

impl Entry {
    pub(super) fn new(issuer: Issuer, text: &str) -> Self {
        Self {
            issuer,
            text: beginning(text),
            started: SystemTime::now(),
            since: Instant::now(),
            state: AtomicU8::new(State::Planning as u8),
            sent_bytes: AtomicU64::new(0),
            memory: Mutex::new(Memory::new()),
            ended: CancellationToken::new(),
            why: OnceLock::new(),
        }
    }

    pub(super) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    pub(super) fn runs(&self, memory: Memory) {
        self.set_state(State::Running);
        *self.memory.lock() = memory;
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The first one who ends it is the one who says why.
    pub(super) fn end(&self, why: &str) {
        self.why.get_or_init(|| why.to_owned());
        self.ended.cancel();
    }

    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    pub(super) fn error(&self, id: QueryId) -> Error {
        let why = self.why.get().map_or("it was ended", String::as_str);
        Error::new(ErrorCode::Cancelled, format!("query {id}: {why}"))
    }

    pub(super) fn status(&self, id: QueryId) -> StatementStatus {
        let states = [State::Planning, State::Queued, State::Running];
        let state = self.state.load(Ordering::Relaxed);
        let env = self.memory.lock().upgrade();
        StatementStatus {
            id,
            issuer: self.issuer.clone(),
            text: self.text.clone(),
            state: states
                .into_iter()
                .find(|known| *known as u8 == state)
                .unwrap_or(State::Running),
            started: self.started,
            running: self.since.elapsed(),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            memory_bytes: env.map_or(0, |env| env.memory_pool.reserved() as u64),
        }
    }
}

fn beginning(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_TEXT_BYTES);
    if end == text.len() {
        text.to_owned()
    } else {
        format!("{}…", &text[..end])
    }
}
