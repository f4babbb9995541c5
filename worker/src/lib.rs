//! The worker: owns shards on its own disk and serves them over Flight.
//!
//! A ticket that arrives at [`service`] is opened, decoded and bound to segments by [`fragment`]. It is run for a gateway, or
//! for one of the [`clients`]; [`scan`] reads the segments. Rows that arrive go through [`write`] into [`storage`].
//! [`membership`] joins a gateway and answers its questions.

/// Work that waits for the disk.
mod background;
/// Clients that fetch their part of a result here themselves.
pub mod clients;
/// Settings.
pub mod config;
/// What all calls share.
pub mod context;
/// From a ticket to rows: decoding, binding, running.
pub mod fragment;
/// Who may send a worker large messages.
mod gate;
/// Which history of writes the rows here belong to.
pub mod history;
/// Joining a gateway, and reporting to those that ask.
pub mod membership;
/// A checksum for each page of a segment.
mod page_checksums;
/// Scans of segments.
pub mod scan;
/// Comparing segments with their checksums.
mod scrub;
/// The process: start, serve, stop.
pub mod server;
/// The Flight service that gateways call.
pub mod service;
/// Shards on disk: segments and the manifests that name them.
pub mod storage;
/// From rows that arrive to sealed segments.
pub mod write;

pub use config::Config;
pub use server::Worker;
