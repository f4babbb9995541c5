//! Stored results hold every sample of every variant, so that they can be analysed again.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use crate::machine::Machine;

/// The values that one turn of a variant measured, by metric. The name of a metric ends with its
/// unit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample(Vec<(String, f64)>);

impl Sample {
    /// Creates a sample without metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a metric.
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

/// The description of a variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Label {
    /// The name of the variant, which is unique in its table.
    pub name: String,
    /// The parameters in which the variant differs from the others.
    pub parameters: BTreeMap<String, Value>,
    /// The name of the variant that this one is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
}

impl Label {
    /// Creates a label without parameters.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            parameters: BTreeMap::new(),
            baseline: None,
        }
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, parameter: &str, value: impl Into<Value>) -> Self {
        self.parameters.insert(parameter.to_owned(), value.into());
        self
    }

    /// Sets the variant that this one is compared with.
    #[must_use]
    pub fn compared_with(mut self, baseline: impl Into<String>) -> Self {
        self.baseline = Some(baseline.into());
        self
    }
}

/// A variant with its samples.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Variant {
    /// The description of the variant.
    #[serde(flatten)]
    pub label: Label,
    /// The samples by metric, in the order of the turns.
    pub samples: BTreeMap<String, Vec<f64>>,
}

impl Variant {
    /// Creates a variant without samples.
    pub fn new(label: Label) -> Self {
        Self {
            label,
            samples: BTreeMap::new(),
        }
    }

    /// Adds the sample of one more turn.
    pub fn push(&mut self, sample: Sample) {
        for (metric, value) in sample.0 {
            self.samples.entry(metric).or_default().push(value);
        }
    }

    /// Returns all samples of a metric, or none if the metric was not measured.
    pub fn samples_of(&self, metric: &str) -> &[f64] {
        self.samples.get(metric).map_or(&[], Vec::as_slice)
    }
}

/// The results of a table, with everything that is needed to judge them.
#[derive(Debug, Clone, Serialize)]
pub struct TableResults {
    /// The name of the table.
    pub table: &'static str,
    /// The title of the table.
    pub title: &'static str,
    /// What was measured, and how.
    pub method: &'static str,
    /// The size of the run.
    pub size: &'static str,
    /// The machine of the run.
    pub machine: Machine,
    /// The versions of the measured software.
    pub versions: BTreeMap<&'static str, &'static str>,
    /// The time at which the run ended, in UTC (RFC 3339).
    pub date: String,
    /// The variants of the table.
    pub variants: Vec<Variant>,
}

impl TableResults {
    /// Writes the results to `<table>.json` in a directory. Creates the directory if it does not
    /// exist.
    ///
    /// # Errors
    /// Returns the errors of the file system.
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
        let label = Label::new("30 rows")
            .with("rows", 30)
            .compared_with("1 row");
        let mut measured = Variant::new(label);
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
