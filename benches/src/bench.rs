use std::path::PathBuf;

use volary_node::Runtimes;

use crate::interleaved::Turns;

/// Default number of workers behind one gateway, in tables with many workers.
const FAN_OUT: usize = 2_160;

/// The size of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// A size that only shows that everything works.
    Smoke,
    /// A few minutes on two slow cores.
    Quick,
    /// The size that published figures come from.
    Normal,
    /// The size [`Size::Normal`] and, in addition, the experiments that take very long.
    Full,
}

impl Size {
    /// Returns the name of the size.
    pub fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Quick => "quick",
            Self::Normal => "normal",
            Self::Full => "full",
        }
    }

    /// Returns the value for this size. A full run uses the value of a normal one.
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
    /// The size of the run.
    pub size: Size,
    /// The number of counted turns, or `None` for the default of the size.
    pub rounds: Option<usize>,
    /// The number of workers in tables with many workers, or `None` for the default of the size.
    pub fan_out: Option<usize>,
    /// The settings of TPC-H.
    pub tpch: TpchOptions,
    /// The directory for data that a later run can use again.
    pub data_dir: PathBuf,
    /// The directory for data that no later run uses. It is empty at the start, and deleted at the
    /// end.
    pub scratch_dir: PathBuf,
    /// The path of the program `volary-fleet`.
    pub fleet_program: PathBuf,
    /// The program `volary` of an earlier release, to compare with.
    pub earlier_release: Option<PathBuf>,
    /// The directory of Ballista's programs. They need not be installed.
    pub ballista_dir: PathBuf,
    /// The runtimes of this process.
    pub runtimes: Runtimes,
}

/// The TPC-H data and queries, and the cluster that the data is loaded into.
#[derive(Debug, Clone)]
pub struct TpchOptions {
    /// The scale factor, or `None` for the default of the size.
    pub scale: Option<f64>,
    /// The number of workers of the cluster.
    pub workers: usize,
    /// The directory of the queries.
    pub queries: PathBuf,
    /// The text that the name of a query must contain for the query to run.
    pub name_filter: String,
}

impl Bench {
    /// Returns how often each variant is measured.
    pub fn turns(&self) -> Turns {
        Turns {
            warm_up: 1,
            counted: self.rounds.unwrap_or(self.size.pick(1, 3, 7)),
        }
    }

    /// Returns how often each variant is measured if a turn is short and the differences are small.
    pub fn short_turns(&self) -> Turns {
        let turns = self.turns();
        Turns {
            counted: turns.counted * 3,
            ..turns
        }
    }

    /// Returns how often each variant is measured if a turn takes long and starts its own
    /// processes. No turn warms up, and at most three turns are counted.
    pub fn long_turns(&self) -> Turns {
        Turns {
            warm_up: 0,
            counted: self.turns().counted.min(3),
        }
    }

    /// Returns the number of workers in tables with many workers.
    pub fn fan_out(&self) -> usize {
        self.fan_out.unwrap_or(self.size.pick(8, 64, FAN_OUT))
    }

    /// Returns the number of partitions of a gather, as gateways choose it.
    pub fn partitions(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// Returns the path of the program `volary`, which is beside `volary-fleet`.
    pub fn volary_program(&self) -> PathBuf {
        self.fleet_program.with_file_name("volary")
    }

    /// Returns a directory of this name, which is deleted at the end of the run.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.scratch_dir.join(name)
    }
}
