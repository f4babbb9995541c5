use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use bytesize::ByteSize;

use crate::results::{TableResults, Variant};
use crate::statistics::{Spread, ratios};

/// Returns the table with one line per variant. A cell holds the median of a metric (smallest to
/// largest), and its ratio to the variant that this one is compared with.
pub fn markdown(results: &TableResults) -> String {
    let variants = &results.variants;
    let metrics: BTreeSet<&String> = variants
        .iter()
        .flat_map(|variant| variant.samples.keys())
        .collect();
    let has_baselines = variants
        .iter()
        .any(|variant| variant.label.baseline.is_some());
    let mut text = format!("## {} ({})\n\n|", results.title, results.size);
    // Writing to a String cannot fail.
    for metric in &metrics {
        let _ = write!(text, " | {metric}");
    }
    text.push_str(if has_baselines {
        " | compared with |\n|---"
    } else {
        " |\n|---"
    });
    text.push_str(&"|---:".repeat(metrics.len()));
    text.push_str(if has_baselines { "|---|\n" } else { "|\n" });
    for variant in variants {
        let _ = write!(text, "| {}", variant.label.name);
        let baseline = baseline_of(variant, variants);
        for metric in &metrics {
            let ours = variant.samples_of(metric);
            let theirs = baseline.map_or(&[] as &[f64], |baseline| baseline.samples_of(metric));
            let _ = write!(text, " | {}", cell(ours, theirs));
        }
        if has_baselines {
            let name = baseline.map_or("", |baseline| baseline.label.name.as_str());
            let _ = write!(text, " | {name}");
        }
        text.push_str(" |\n");
    }
    text
}

/// Writes a page for people next to the raw results, which are at `path`.
///
/// # Errors
/// Returns the errors of the file system.
pub fn write_page(results: &TableResults, path: &Path) -> Result<()> {
    let path = path.with_extension("md");
    std::fs::write(&path, page(results)).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the page: the table, what was done, and the machine it ran on.
fn page(results: &TableResults) -> String {
    let machine = &results.machine;
    let versions: Vec<_> = results
        .versions
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    format!(
        "{}\n{}\n\nEach value is the median of the turns (smallest to largest). After × follows the median of the ratios, turn by turn, to the variant that it is compared with.\n\n{}; {}, {} processors, {}; {}; {}. Raw samples: [{table}.json]({table}.json).\n",
        markdown(results),
        results.method,
        results.date,
        machine.model,
        machine.cpus,
        ByteSize(machine.memory),
        machine.os,
        versions.join(", "),
        table = results.table,
    )
}

/// Returns the variant that this one is compared with.
fn baseline_of<'a>(variant: &Variant, variants: &'a [Variant]) -> Option<&'a Variant> {
    let name = variant.label.baseline.as_ref()?;
    variants.iter().find(|other| other.label.name == *name)
}

fn cell(ours: &[f64], theirs: &[f64]) -> String {
    let Some(spread) = Spread::of(ours) else {
        return String::new();
    };
    let shown = show(spread);
    match Spread::of(&ratios(ours, theirs)) {
        Some(ratio) => format!("{shown}, × {}", show(ratio)),
        None => shown,
    }
}

fn show(spread: Spread) -> String {
    format!(
        "{} ({} to {})",
        figure(spread.median),
        figure(spread.min),
        figure(spread.max)
    )
}

/// Figures above this are shown as "∞". No metric is so large. A ratio is so large only if the
/// other value is 0.
const MAX_SHOWN: f64 = 1e12;

/// Formats a number with about three significant digits.
fn figure(value: f64) -> String {
    if value > MAX_SHOWN {
        return "∞".to_owned();
    }
    let decimals = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::machine::Machine;
    use crate::results::{Label, Sample};

    #[test]
    fn variants_are_compared_turn_by_turn() {
        let variant = |label: Label, samples: [f64; 3]| {
            let mut measured = Variant::new(label);
            for sample in samples {
                measured.push(Sample::new().with("ms", sample));
            }
            measured
        };
        let results = TableResults {
            table: "t",
            title: "A table",
            method: "",
            size: "quick",
            machine: Machine::this(),
            versions: BTreeMap::new(),
            date: String::new(),
            variants: vec![
                variant(Label::new("theirs"), [10.0, 20.0, 300.0]),
                variant(
                    Label::new("ours").compared_with("theirs"),
                    [5.0, 20.0, 600.0],
                ),
            ],
        };
        let text = markdown(&results);
        let lines = [
            "## A table (quick)",
            "",
            "| | ms | compared with |",
            "|---|---:|---|",
            "| theirs | 20.0 (10.0 to 300) |  |",
            "| ours | 20.0 (5.00 to 600), × 1.00 (0.50 to 2.00) | theirs |",
            "",
        ];
        assert_eq!(text, lines.join("\n"));
        let page = page(&results);
        assert!(page.starts_with(&text), "{page}");
        assert!(page.ends_with("Raw samples: [t.json](t.json).\n"), "{page}");
    }
}
