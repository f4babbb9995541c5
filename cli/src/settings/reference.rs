//! Generates `docs/configuration.md` from the doc comments of the settings and their defaults.

use std::fmt::Write;

use serde_json::{Map, Value};
use volary_flight_proto::{Error, Result};

use super::{Settings, to_json};

const INTRODUCTION: &str = "\
# Configuration

<!-- Made by `volary config --reference` from the doc comments of the settings. A test compares. -->

Volary runs without any settings. They come from, the later one winning:

1. the defaults below;
2. a TOML file: `--config FILE`, or `VOLARY_CONFIG`, or `volary.toml` of the current directory if it exists;
3. the environment: `VOLARY_GATEWAY__QUERY__BATCH_ROWS=4096` is `gateway.query.batch_rows`; a list is separated by commas.
   `VOLARY_SECRET` is `gateway.secret` and `worker.secret` at once;
4. flags: `volary gateway --help`.

A key that does not exist is refused, and so is a value that a key does not take: nothing is started, the message says where it
stands. `volary config` prints what is in effect, without the secrets. Times are written `250ms`, `10s`, `1h`; sizes
`512MiB`, `2GiB`, or `50%` of the machine's (or the cgroup's) memory.

```toml
[gateway]
listen = \"0.0.0.0:7100\" # for other machines too: VOLARY_SECRET must be set
load.allowed_roots = [\"/data\", \"s3://bucket/prefix\"]

[gateway.query]
timeout = \"10m\"
```
";

/// Returns the page.
///
/// # Errors
/// Returns `INTERNAL` if there is a bug.
pub fn markdown() -> Result<String> {
    let schema = schemars::schema_for!(Settings).to_value();
    let defaults = to_json(&Settings::default())?;
    let mut page = INTRODUCTION.to_owned();
    let root = Node::new(&schema, &schema);
    // The sections are in the order in which a new user meets them, not in alphabetical order.
    for section in ["local", "gateway", "worker", "log"] {
        root.child(section)?
            .write(section, &defaults[section], &mut page)?;
    }
    Ok(page)
}

/// A part of the schema.
#[derive(Clone, Copy)]
struct Node<'a> {
    /// The whole schema, in which references are resolved.
    schema: &'a Value,
    /// The description of the part where it is used, or else its own description.
    description: Option<&'a str>,
    /// The properties of the part, if it is a section.
    properties: Option<&'a Map<String, Value>>,
}

impl<'a> Node<'a> {
    fn new(schema: &'a Value, part: &'a Value) -> Self {
        let target = part
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| schema.pointer(reference.trim_start_matches('#')))
            .unwrap_or(part);
        let description = |part: &'a Value| part.get("description").and_then(Value::as_str);
        Self {
            schema,
            description: description(part).or_else(|| description(target)),
            properties: target.get("properties").and_then(Value::as_object),
        }
    }

    fn child(self, name: &str) -> Result<Self> {
        self.properties
            .and_then(|properties| properties.get(name))
            .map(|part| Self::new(self.schema, part))
            .ok_or_else(|| Error::internal(format!("the schema of the settings has no {name}")))
    }

    fn write(self, path: &str, defaults: &Value, page: &mut String) -> Result<()> {
        let mut names: Vec<&String> = self
            .properties
            .map(|properties| properties.keys().collect())
            .unwrap_or_default();
        names.sort_unstable();
        let mut table = String::new();
        let mut sections = Vec::new();
        for name in names {
            let child = self.child(name)?;
            if child.properties.is_some() {
                sections.push((name, child));
            } else {
                line(
                    &mut table,
                    format_args!(
                        "| `{name}` | {} | {} |",
                        default(&defaults[name]),
                        child.text()
                    ),
                );
            }
        }
        line(page, format_args!("\n## `[{path}]`\n\n{}", self.text()));
        if !table.is_empty() {
            page.push_str("\n| key | default | meaning |\n|---|---|---|\n");
            page.push_str(&table);
        }
        for (name, child) in sections {
            child.write(&format!("{path}.{name}"), &defaults[name], page)?;
        }
        Ok(())
    }

    /// Returns the description as one line that can stand in a cell of a table.
    fn text(self) -> String {
        self.description
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace('|', "\\|")
    }
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String does not fail.
    let _ = writeln!(page, "{text}");
}

fn default(value: &Value) -> String {
    if value.is_null() {
        "none".to_owned()
    } else {
        format!("`{value}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Layers;

    #[test]
    fn the_page_in_docs_is_the_one_of_this_release() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            page,
            markdown().unwrap(),
            "make it again: volary config --reference > docs/configuration.md"
        );
    }

    #[test]
    fn the_example_is_accepted() {
        let (_, example) = INTRODUCTION.split_once("```toml\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("volary.toml");
        std::fs::write(&file, example).unwrap();
        let layers = Layers {
            file: Some(file),
            environment: vec![(
                "VOLARY_SECRET".to_owned(),
                "the secret of the nodes".to_owned(),
            )],
            flags: Vec::new(),
        };
        let settings = Settings::load(&layers).unwrap();
        assert_eq!(settings.gateway.load.allowed_roots.len(), 2);
        assert_eq!(settings.gateway.query.timeout.as_secs(), 600);
    }

    #[test]
    fn every_setting_is_described() {
        for line in markdown()
            .unwrap()
            .lines()
            .filter(|line| line.starts_with("| `"))
        {
            assert!(!line.ends_with("|  |"), "{line}");
        }
    }
}
