//! Results as they are kept: every sample of every variant, so that they can be looked at again.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use crate::machine::Machine;

/// What one turn of a variant measured, by metric. The unit is last in a metric's name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample(Vec<(String, f64)>);

impl Sample {
    /// Nothing so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more metric.
    #[must_use]
    pub fn with(mut self, metric: impl Into<String>, value: f64) -> Self {
        self.0.push((metric.into(), value));
        self
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metrics = self.0.iter();
        let metrics: Vec<_> = metrics
            .map(|(metric, value)| format!("{metric}={value:.3}"))
            .collect();
        f.write_str(&metrics.join(" "))
    }
}

/// What a variant is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Label {
    /// Its name, which no other variant of the table has.
    pub name: String,
    /// What tells it from the others.
    pub parameters: BTreeMap<String, Value>,
    /// The variant that it is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
}

impl Label {
    /// Without parameters.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            parameters: BTreeMap::new(),
            baseline: None,
        }
    }

    /// With one more parameter.
    #[must_use]
    pub fn with(mut self, parameter: &str, value: impl Into<Value>) -> Self {
        self.parameters.insert(parameter.to_owned(), value.into());
        self
    }

    /// Compared with the variant of this name.
    #[must_use]
    pub fn beside(mut self, baseline: impl Into<String>) -> Self {
        self.baseline = Some(baseline.into());
        self
    }
}

/// A variant with its samples.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// What it is.
    #[serde(flatten)]
    pub label: Label,
    /// By metric, in the order of the turns.
    pub samples: BTreeMap<String, Vec<f64>>,
}

impl Measured {
    /// Without samples.
    pub fn new(label: Label) -> Self {
        Self {
            label,
            samples: BTreeMap::new(),
        }
    }

    /// One more turn.
    pub fn push(&mut self, sample: Sample) {
        for (metric, value) in sample.0 {
            self.samples.entry(metric).or_default().push(value);
        }
    }

    /// All samples of a metric; none if it was not measured.
    pub fn samples_of(&self, metric: &str) -> &[f64] {
        self.samples.get(metric).map_or(&[], Vec::as_slice)
    }
}

/// A table with all that is needed to judge it.
#[derive(Debug, Clone, Serialize)]
pub struct TableResults {
    /// Its name.
    pub table: &'static str,
    /// Its title.
    pub title: &'static str,
    /// What was done, and how.
    pub method: &'static str,
    /// How large the run was.
    pub size: &'static str,
    /// What it ran on.
    pub machine: Machine,
    /// Of what is measured.
    pub versions: BTreeMap<&'static str, &'static str>,
    /// When it ended, in UTC (RFC 3339).
    pub date: String,
    /// The variants.
    pub variants: Vec<Measured>,
}

impl TableResults {
    /// Writes it to `<table>.json` in a directory, which is made if need be.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, directory: &Path) -> Result<PathBuf> {
        let path = directory.join(format!("{}.json", self.table));
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(&path, text))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_variant_is_kept_with_all_its_samples() {
        let label = Label::new("30 rows").with("rows", 30).beside("1 row");
        let mut measured = Measured::new(label);
        for value in [2.0, 1.0] {
            measured.push(Sample::new().with("mb_per_s", value));
        }
        let kept = json!({
            "name": "30 rows", "parameters": {"rows": 30}, "baseline": "1 row",
            "samples": {"mb_per_s": [2.0, 1.0]},
        });
        assert_eq!(serde_json::to_value(&measured).unwrap(), kept);
        assert_eq!(measured.samples_of("ms"), &[] as &[f64]);
    }
}
