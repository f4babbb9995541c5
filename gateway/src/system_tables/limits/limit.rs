//! Describes a limit of a gateway, and tells how much of it is in use.

use std::sync::Arc;

use volary_node::admission::Admission;
use volary_node::memory::ProcessMemory;
use volary_node::size::MemorySize;
use volary_node::unfinished::Unfinished;

use crate::config::Config;
use crate::statements::Statements;

/// The parts of the gateway that know how much of the limits is in use.
#[derive(Debug, Clone)]
pub(crate) struct Usage {
    /// The settings.
    pub(crate) config: Arc<Config>,
    /// The places of running statements.
    pub(crate) places: Arc<Admission>,
    /// The places that are kept for administrators and for queries of the schema `system`.
    pub(crate) kept_places: Arc<Admission>,
    /// The budget for messages that have arrived only in part.
    pub(crate) unfinished: Unfinished,
}

impl Usage {
    fn of(&self, counted: Counted, statements: &Statements) -> u64 {
        let in_use = match counted {
            Counted::Running => self.places.running(),
            Counted::Waiting => self.places.waiting(),
            Counted::InKeptPlaces => self.kept_places.running(),
            Counted::OfOperators => statements.memory_bytes(),
            Counted::OfProcess => ProcessMemory::this().in_use(),
            Counted::Unfinished => self.unfinished.bytes(),
        };
        in_use as u64
    }
}

/// A quantity that is counted in one place for the whole node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Counted {
    Running,
    Waiting,
    InKeptPlaces,
    OfOperators,
    OfProcess,
    Unfinished,
}

/// A limit of a gateway.
#[derive(Debug)]
pub struct Limit {
    /// What the limit applies to: the node, or each user, session, statement, address, connection
    /// or call.
    pub scope: &'static str,
    /// What is limited.
    pub name: &'static str,
    /// The setting that sets the limit. `None` if the limit is fixed.
    pub setting: Option<&'static str>,
    /// The value of the limit, in `unit`.
    pub most: u64,
    /// The value of the limit in words, if it depends on the machine.
    pub in_words: Option<String>,
    /// The unit of `most`.
    pub unit: &'static str,
    /// What happens if more is needed than the limit allows.
    pub beyond: &'static str,
    /// The quantity that is in use. `None` if it is not counted in one place.
    counted: Option<Counted>,
    /// The user, if the limit is that of one user alone.
    pub(super) user: Option<OfUser>,
}

/// A user who has a limit, and how much of the limit the user has in use.
#[derive(Debug)]
pub(super) struct OfUser {
    pub(super) name: String,
    pub(super) in_use: u64,
}

impl Limit {
    pub(super) const fn new(
        scope: &'static str,
        name: &'static str,
        most: u64,
        unit: &'static str,
        beyond: &'static str,
    ) -> Self {
        Self {
            scope,
            name,
            setting: None,
            most,
            in_words: None,
            unit,
            beyond,
            counted: None,
            user: None,
        }
    }

    pub(super) fn set_by(self, setting: &'static str) -> Self {
        Self {
            setting: Some(setting),
            ..self
        }
    }

    pub(super) fn counted(self, counted: Counted) -> Self {
        Self {
            counted: Some(counted),
            ..self
        }
    }

    pub(super) fn in_words(self, words: impl Into<String>) -> Self {
        Self {
            in_words: Some(words.into()),
            ..self
        }
    }

    pub(super) fn of_machine(self, size: MemorySize) -> Self {
        match size {
            MemorySize::Bytes(_) => self,
            MemorySize::Percent(_) => self.in_words(format!("{size} of the machine's memory")),
        }
    }

    pub(super) fn of_user(self, name: &str, in_use: u64) -> Self {
        let name = name.to_owned();
        Self {
            user: Some(OfUser { name, in_use }),
            ..self
        }
    }

    pub(super) fn in_use(&self, usage: &Usage, statements: &Statements) -> Option<u64> {
        let of_node = || {
            let counted = self.counted?;
            Some(usage.of(counted, statements))
        };
        self.user.as_ref().map(|user| user.in_use).or_else(of_node)
    }
}
