use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use config::{Config, ConfigError, File, FileFormat, Map, Source, Value, ValueKind};
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

/// The settings that the layers give, and what is wrong with them.
pub(super) struct Merged {
    /// The settings without what was refused. `None` if the layers cannot be read at all.
    pub(super) settings: Option<Settings>,
    /// What was refused, in the order of the layers.
    pub(super) problems: Vec<Error>,
}

impl Layers {
    /// Puts the layers on top of the defaults. Leaves out what is refused, so that one call finds
    /// everything that is wrong.
    pub(super) fn merge(&self) -> Merged {
        let unreadable = |error| Merged {
            settings: None,
            problems: vec![error],
        };
        let defaults = match to_json(&Settings::default()) {
            Ok(defaults) => defaults,
            Err(error) => return unreadable(error),
        };
        let mut merger = Merger {
            defaults,
            origins: HashMap::new(),
            values: Vec::new(),
            problems: Vec::new(),
        };
        let file = self.existing_file();
        if let Err(error) = file.and_then(|path| path.map_or(Ok(()), |path| merger.file(path))) {
            return unreadable(error);
        }
        merger.environment(&self.environment);
        for flag in &self.flags {
            merger.set(flag.key, flag.value.clone(), format!("flag {}", flag.name));
        }
        merger.merged()
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
    /// The values from the file, then from the environment, and then from the flags.
    values: Vec<(String, Value)>,
    problems: Vec<Error>,
}

impl Merger {
    fn file(&mut self, path: &Path) -> Result<()> {
        let file = File::from(path).format(FileFormat::Toml);
        let keys = file.collect().map_err(|error| parse_failed(path, &error))?;
        let known = self.defaults.clone();
        self.take_section("", &known, keys, &path.display().to_string());
        Ok(())
    }

    /// Takes the values of a section of a file whose keys are keys of that section.
    fn take_section(
        &mut self,
        section: &str,
        known: &Json,
        keys: Map<String, Value>,
        origin: &str,
    ) {
        let keys: BTreeMap<String, Value> = keys.into_iter().collect();
        for (name, value) in keys {
            let key = join_key(section, &name);
            let Some(below) = known.get(&name) else {
                self.problems
                    .push(unknown_key(&key, section, known, origin));
                continue;
            };
            match (below.is_object(), value.kind) {
                (true, ValueKind::Table(keys)) => self.take_section(&key, below, keys, origin),
                (true, _) => self.problems.push(Error::invalid(format!(
                    "{origin}: {key} is a section, not a setting; write [{key}]"
                ))),
                (false, kind) => {
                    self.origins.insert(key.clone(), origin.to_owned());
                    self.values.push((key, kind.into()));
                }
            }
        }
    }

    fn environment(&mut self, variables: &[(String, String)]) {
        for (name, text) in variables {
            if name == SECRET {
                for key in ["gateway.secret", "worker.secret"] {
                    self.set(
                        key,
                        ValueKind::from(text.as_str()),
                        format!("variable {name}"),
                    );
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
            self.set(&key, value, format!("variable {name}"));
        }
    }

    fn set(&mut self, key: &str, value: ValueKind, origin: String) {
        match self.check_key(key, &origin) {
            Ok(()) => {
                self.origins.insert(key.to_owned(), origin);
                self.values.push((key.to_owned(), value.into()));
            }
            Err(error) => self.problems.push(error),
        }
    }

    fn check_key(&self, key: &str, origin: &str) -> Result<()> {
        let mut section = String::new();
        let mut known = &self.defaults;
        for name in key.split('.') {
            let path = join_key(&section, name);
            known = known
                .get(name)
                .ok_or_else(|| unknown_key(&path, &section, known, origin))?;
            section = path;
        }
        if known.is_object() {
            return Err(Error::invalid(format!(
                "{origin}: {key} is a section, not a setting; it has {}",
                sorted_keys(known)
            )));
        }
        Ok(())
    }

    /// Builds the settings. A value that its key does not accept is a problem, and is left out.
    fn merged(mut self) -> Merged {
        loop {
            let built = self.build();
            let error = match built {
                Ok(settings) => {
                    return Merged {
                        settings: Some(settings),
                        problems: self.problems,
                    };
                }
                Err(error) => error,
            };
            let key = refused_key(&error).map(str::to_owned);
            let problem = self.refused_value(&error);
            self.problems.push(problem);
            let before = self.values.len();
            self.values.retain(|(name, _)| Some(name) != key.as_ref());
            if self.values.len() == before {
                return Merged {
                    settings: None,
                    problems: self.problems,
                };
            }
        }
    }

    fn build(&self) -> std::result::Result<Settings, ConfigError> {
        let mut builder = Config::builder();
        for (key, value) in &self.values {
            builder = builder.set_override(key, value.clone())?;
        }
        builder.build()?.try_deserialize()
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
        let (Some(key), Some(setting)) = (key, refused_key(error)) else {
            return Error::invalid(format!("the settings cannot be read: {what}"));
        };
        let origin = self
            .origins
            .get(setting)
            .map_or_else(String::new, |origin| format!("{origin}: "));
        Error::invalid(format!("{origin}{key}: {what}"))
    }
}

/// Returns the key of the setting whose value was refused. The value may be an item of a list.
fn refused_key(error: &ConfigError) -> Option<&str> {
    let (ConfigError::Type { key, .. } | ConfigError::At { key, .. }) = error else {
        return None;
    };
    key.as_deref()?.split('[').next()
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
