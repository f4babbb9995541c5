//! Benchmarks: each [table](tables) is an experiment whose variants are measured in turns, in one run, on one machine.
//!
//! Machines are noisy: what is quoted is ratios between variants of the same run, with their spread. What is measured runs in a process of
//! its own wherever its processor time or memory is of interest: a gateway in a [`fleet`], stand-ins for workers ([`stub`]), and
//! one that only reads ([`reading`]). All of that is asked of Linux ([`procfs`]), and of no other system.

/// A cluster of Ballista, whose programs are installed or not.
pub mod ballista;
/// What the tables of one run share: how large they are, and where.
pub mod bench;
/// Clients that ask one question after another.
pub mod clients;
/// Thousands of real workers on one machine.
pub mod fleet;
/// Variants that are measured in turns.
pub mod interleaved;
/// What a run ran on.
pub mod machine;
/// A process that is told what to do by its standard input, and ends with it.
pub mod process;
/// Processor time, context switches and memory of a process.
pub mod procfs;
/// Reading from many workers, in several ways.
pub mod reading;
/// Results for people.
pub mod report;
/// Results as they are kept.
pub mod results;
/// Rows of a chosen width.
pub mod rows;
/// Medians, spread, ratios, percentiles.
pub mod statistics;
/// Stand-ins for workers, which answer what they have encoded beforehand.
pub mod stub;
/// The experiments.
pub mod tables;
