//! Results as a table and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::interleaved::Times;

/// One line: the same work done by a cluster and by the other side.
#[derive(Debug, Clone)]
pub struct Line {
    /// What was done.
    pub name: String,
    /// By Volary.
    pub ours: Times,
    /// By the other side.
    pub theirs: Times,
}

/// A table in Markdown: medians in milliseconds, and the ratio with its spread.
pub fn markdown(lines: &[Line], theirs: &str) -> String {
    let mut text = format!(
        "| | Volary ms | {theirs} ms | ratio (median) | ratio (min to max) |\n|---|---:|---:|---:|---:|\n"
    );
    let (mut ours_total, mut theirs_total) = (0.0, 0.0);
    for line in lines {
        let (_, ours, _) = line.ours.spread_ms();
        let (_, other, _) = line.theirs.spread_ms();
        let (low, ratio, high) = line.ours.ratio(&line.theirs);
        ours_total += ours;
        theirs_total += other;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {ours:.1} | {other:.1} | {ratio:.2} | {low:.2} to {high:.2} |",
            line.name
        );
    }
    let _ = writeln!(
        text,
        "| **total of medians** | **{ours_total:.1}** | **{theirs_total:.1}** | **{:.2}** | |",
        ours_total / f64::max(theirs_total, 1e-9)
    );
    text
}

/// What a line's median times are in rows per second.
pub fn rates(line: &Line, rows: u64, theirs: &str) -> String {
    let rate = |times: &Times| {
        let (_, median_ms, _) = times.spread_ms();
        rows as f64 / f64::max(median_ms, 1e-9)
    };
    format!(
        "{rows} rows: Volary {:.0} thousand rows/s, {theirs} {:.0} thousand rows/s",
        rate(&line.ours),
        rate(&line.theirs)
    )
}

/// The raw times, to be kept.
pub fn json(lines: &[Line]) -> Value {
    let spread = |times: &Times| {
        let (min, median, max) = times.spread_ms();
        json!({"min_ms": min, "median_ms": median, "max_ms": max})
    };
    lines
        .iter()
        .map(|line| {
            let (low, median, high) = line.ours.ratio(&line.theirs);
            json!({
                "name": line.name,
                "volary": spread(&line.ours),
                "other": spread(&line.theirs),
                "ratio": {"min": low, "median": median, "max": high},
            })
        })
        .collect()
}
