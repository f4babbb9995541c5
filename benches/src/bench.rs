//! What the tables of one run share: how large they are, and where.

use std::path::PathBuf;

use volary_node::Runtimes;

use crate::interleaved::Turns;

/// Workers behind one gateway, where many are meant.
const FAN_OUT: usize = 2_160;

/// How large the tables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// So small that it only shows that it works.
    Smoke,
    /// A few minutes on two slow cores.
    Quick,
    /// What the figures are from.
    Normal,
    /// With what takes very long.
    Full,
}

impl Size {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Quick => "quick",
            Self::Normal => "normal",
            Self::Full => "full",
        }
    }

    /// One of these; for a full run that of a normal one.
    pub fn pick<T>(self, smoke: T, quick: T, normal: T) -> T {
        match self {
            Self::Smoke => smoke,
            Self::Quick => quick,
            Self::Normal | Self::Full => normal,
        }
    }
}

/// One run of some tables.
#[derive(Debug)]
pub struct Bench {
    /// How large they are.
    pub size: Size,
    /// Counted turns; `None` for what suits the size.
    pub rounds: Option<usize>,
    /// Workers where many are meant; `None` for what suits the size.
    pub fan_out: Option<usize>,
    /// TPC-H.
    pub tpch: Tpch,
    /// What a later run may use again is kept here.
    pub data_dir: PathBuf,
    /// What no later run uses: a directory that is empty at the start, and goes away at the end.
    pub scratch_dir: PathBuf,
    /// `volary-fleet`.
    pub fleet_program: PathBuf,
    /// Where Ballista's programs are, if they are.
    pub ballista: PathBuf,
    /// Those of this process.
    pub runtimes: Runtimes,
}

/// The cluster that TPC-H is loaded into.
#[derive(Debug, Clone)]
pub struct Tpch {
    /// Scale factor; `None` for what suits the size.
    pub scale: Option<f64>,
    /// Its workers.
    pub workers: usize,
    /// Where the queries are.
    pub queries: PathBuf,
    /// Only queries whose name contains this.
    pub only: String,
}

impl Bench {
    /// How often each variant is measured.
    pub fn turns(&self) -> Turns {
        Turns {
            warm_up: 1,
            counted: self.rounds.unwrap_or(self.size.pick(1, 3, 7)),
        }
    }

    /// The same where a turn is short, and the differences are small.
    pub fn short_turns(&self) -> Turns {
        let turns = self.turns();
        Turns {
            counted: turns.counted * 3,
            ..turns
        }
    }

    /// The same where a turn takes so long, and begins with a start of its own, that none warms up and three are enough.
    pub fn long_turns(&self) -> Turns {
        Turns {
            warm_up: 0,
            counted: self.turns().counted.min(3),
        }
    }

    /// Workers where many are meant.
    pub fn fan_out(&self) -> usize {
        self.fan_out.unwrap_or(self.size.pick(8, 64, FAN_OUT))
    }

    /// Partitions of a gather, as gateways have them.
    pub fn partitions(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// A directory of this name, which goes away.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.scratch_dir.join(name)
    }
}
