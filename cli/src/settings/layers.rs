use std::collections::HashMap;
use std::path::{Path, PathBuf};

use config::{Config, ConfigError, File, FileFormat, Map, Source, ValueKind};
use serde_json::Value as Json;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::{Settings, to_json};

/// The file that is read if it exists and no other file is named.
const DEFAULT_FILE: &str = "volary.toml";
const PREFIX: &str = "VOLARY_";
const SECTION_SEPARATOR: &str = "__";
/// Name of the variable with the cluster's secret, for both kinds of node.
const SECRET: &str = "VOLARY_SECRET";

/// The sources of the settings.
#[derive(Debug, Default)]
pub struct Layers {
    /// The settings file. `None` stands for `volary.toml` in the current directory, if it exists.
    pub file: Option<PathBuf>,
    /// Environment variables with their values. `VOLARY_GATEWAY__QUERY__BATCH_ROWS` sets
    /// `gateway.query.batch_rows`. The items of a list are separated by commas. `VOLARY_SECRET` is
    /// the secret of both kinds of node. Other variables are ignored.
    pub environment: Vec<(String, String)>,
    /// The settings that the command line gives.
    pub flags: Vec<Flag>,
}

/// A setting that the command line gives.
#[derive(Debug, Clone)]
pub struct Flag {
    /// The flag as the user writes it, for example `--listen`.
    pub name: &'static str,
    /// The key of the setting, for example `gateway.listen`.
    pub key: &'static str,
    /// The value of the setting.
    pub value: ValueKind,
}

/// Returns the environment variables of this process. Variables that are not Unicode are left out,
/// because Volary has no such variable.
pub fn process_environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

impl Layers {
    pub(super) fn merge(&self) -> Result<Settings> {
        let mut merger = Merger {
            defaults: to_json(&Settings::default())?,
            origins: HashMap::new(),
            values: Vec::new(),
        };
        let mut builder = Config::builder();
        if let Some(path) = self.existing_file()? {
            builder = builder.add_source(merger.file(path)?);
        }
        merger.environment(&self.environment)?;
        for flag in &self.flags {
            merger.set(flag.key, flag.value.clone(), format!("flag {}", flag.name))?;
        }
        for (key, value) in std::mem::take(&mut merger.values) {
            builder = builder
                .set_override(&key, value)
                .map_err(|error| merger.refused_value(&error))?;
        }
        builder
            .build()
            .and_then(Config::try_deserialize)
            .map_err(|error| merger.refused_value(&error))
    }

    fn existing_file(&self) -> Result<Option<&Path>> {
        match &self.file {
            Some(path) if path.is_file() => Ok(Some(path)),
            Some(path) => Err(Error::not_found(format!(
                "the settings file {} does not exist",
                path.display()
            ))),
            None => Ok(Some(Path::new(DEFAULT_FILE)).filter(|path| path.is_file())),
        }
    }
}

/// The state of merging the layers.
struct Merger {
    /// The default settings as JSON. They contain every key.
    defaults: Json,
    /// The layer that gave a key its value, for error messages.
    origins: HashMap<String, String>,
    /// The values from the environment and then from the flags.
    values: Vec<(String, ValueKind)>,
}

impl Merger {
    fn file(&mut self, path: &Path) -> Result<impl Source + Send + Sync + 'static> {
        let file = File::from(path).format(FileFormat::Toml);
        let keys = file.collect().map_err(|error| parse_failed(path, &error))?;
        self.check_section(
            "",
            &self.defaults.clone(),
            keys,
            &path.display().to_string(),
        )?;
        Ok(file)
    }

    /// Checks that each key in a section of a file is a key of that section.
    fn check_section(
        &mut self,
        section: &str,
        known: &Json,
        keys: Map<String, config::Value>,
        origin: &str,
    ) -> Result<()> {
        for (name, value) in keys {
            let key = join_key(section, &name);
            match (known.get(&name), value.kind) {
                (None, _) => return Err(unknown_key(&key, section, known, origin)),
                (Some(below @ Json::Object(_)), ValueKind::Table(keys)) => {
                    self.check_section(&key, below, keys, origin)?;
                }
                (Some(Json::Object(_)), _) => {
                    return Err(Error::invalid(format!(
                        "{origin}: {key} is a section, not a setting; write [{key}]"
                    )));
                }
                (Some(_), _) => {
                    self.origins.insert(key, origin.to_owned());
                }
            }
        }
        Ok(())
    }

    fn environment(&mut self, variables: &[(String, String)]) -> Result<()> {
        for (name, text) in variables {
            if name == SECRET {
                for key in ["gateway.secret", "worker.secret"] {
                    self.set(
                        key,
                        ValueKind::from(text.as_str()),
                        format!("variable {name}"),
                    )?;
                }
            }
            // Volary has no variable without a section. Kubernetes sets `VOLARY_PORT` and similar
            // variables for a service named volary.
            let Some(path) = name
                .strip_prefix(PREFIX)
                .filter(|path| path.contains(SECTION_SEPARATOR))
            else {
                continue;
            };
            let key = path.to_lowercase().replace(SECTION_SEPARATOR, ".");
            let is_list = self.default_of(&key).is_some_and(Json::is_array);
            let value = if is_list {
                let items = text
                    .split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty());
                ValueKind::from(items.map(str::to_owned).collect::<Vec<_>>())
            } else {
                ValueKind::from(text.as_str())
            };
            self.set(&key, value, format!("variable {name}"))?;
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: ValueKind, origin: String) -> Result<()> {
        let mut section = String::new();
        let mut known = &self.defaults;
        for name in key.split('.') {
            let path = join_key(&section, name);
            known = known
                .get(name)
                .ok_or_else(|| unknown_key(&path, &section, known, &origin))?;
            section = path;
        }
        if known.is_object() {
            return Err(Error::invalid(format!(
                "{origin}: {key} is a section, not a setting; it has {}",
                sorted_keys(known)
            )));
        }
        self.origins.insert(key.to_owned(), origin);
        self.values.push((key.to_owned(), value));
        Ok(())
    }

    fn default_of(&self, key: &str) -> Option<&Json> {
        key.split('.')
            .try_fold(&self.defaults, |known, name| known.get(name))
    }

    /// Builds the error for a value that its key does not accept.
    fn refused_value(&self, error: &ConfigError) -> Error {
        let (key, what) = match error {
            ConfigError::Type {
                unexpected,
                expected,
                key,
                ..
            } => (key.as_deref(), format!("{unexpected} is not {expected}")),
            ConfigError::At { error, key, .. } => (key.as_deref(), error.to_string()),
            other => (None, other.to_string()),
        };
        let Some(key) = key else {
            return Error::invalid(format!("the settings cannot be read: {what}"));
        };
        let setting = key.split('[').next().unwrap_or(key);
        let origin = self
            .origins
            .get(setting)
            .map_or_else(String::new, |origin| format!("{origin}: "));
        Error::invalid(format!("{origin}{key}: {what}"))
    }
}

/// Builds the error for a file that is not TOML. The TOML parser's message contains the wrong line,
/// which may hold a secret. Only the first line (the place) and the last line (the reason) are
/// kept.
fn parse_failed(path: &Path, error: &ConfigError) -> Error {
    let text = match error {
        ConfigError::FileParse { cause, .. } => cause.to_string(),
        other => other.to_string(),
    };
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let place = lines.next().unwrap_or_default();
    let what = lines
        .next_back()
        .map_or_else(String::new, |what| format!(": {what}"));
    Error::new(
        ErrorCode::InvalidArgument,
        format!("{}: {place}{what}", path.display()),
    )
}

fn unknown_key(key: &str, section: &str, known: &Json, origin: &str) -> Error {
    let place = if section.is_empty() {
        "the sections are".to_owned()
    } else {
        format!("[{section}] has")
    };
    Error::invalid(format!(
        "{origin}: there is no setting {key}; {place} {}",
        sorted_keys(known)
    ))
}

fn sorted_keys(section: &Json) -> String {
    let mut names: Vec<&str> = section
        .as_object()
        .map(|section| section.keys().map(String::as_str).collect())
        .unwrap_or_default();
    names.sort_unstable();
    names.join(", ")
}

fn join_key(section: &str, name: &str) -> String {
    if section.is_empty() {
        name.to_owned()
    } else {
        format!("{section}.{name}")
    }
}
