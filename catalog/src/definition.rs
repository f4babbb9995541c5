//! What a statement says of a table that it creates.

use std::collections::HashSet;

use arrow::datatypes::SchemaRef;
use volary_flight_proto::write::SHARD_COLUMN;
use volary_flight_proto::{Error, Result};

use crate::shard_key;

/// A shard is a file and a number in every ticket: more of them only cost.
pub const MAX_SHARDS: u32 = 65_536;

/// A table to be created.
#[derive(Debug, Clone)]
pub struct TableDefinition {
    /// Its name, as SQL's rules have normalised it.
    pub name: String,
    /// Its columns.
    pub schema: SchemaRef,
    /// How its rows are spread.
    pub kind: DefinitionKind,
    /// Columns that segments are sorted by. Empty: by the shard key.
    pub sort_key: Vec<usize>,
}

/// How the rows of a table to be created are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionKind {
    /// Over shards.
    Sharded {
        /// Position in the schema of the shard key, by whose hash they are spread; none if a row may be in any shard.
        key: Option<usize>,
        /// Number of shards, 1 to [`MAX_SHARDS`].
        shards: u32,
    },
    /// A copy on every worker.
    Reference,
}

/// What becomes of a table that has the name of one which is to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// It stays, and creating the other one is an error.
    Fail,
    /// It stays, and the other one is not created.
    Keep,
    /// The other one takes its place, in one step, when it is there.
    Replace,
}

impl TableDefinition {
    /// Refuses what cannot be a table.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the table and the column.
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::invalid(format!("table \"{}\": {what}", self.name)));
        if self.name.is_empty() {
            return Err(Error::invalid("a table needs a name"));
        }
        let fields = self.schema.fields();
        if fields.is_empty() {
            return refuse("a table needs at least one column".to_owned());
        }
        let mut names = HashSet::new();
        for field in fields {
            let name = field.name().as_str();
            if name == SHARD_COLUMN {
                return refuse(format!(
                    "the column name \"{name}\" is reserved; choose another one"
                ));
            }
            if !names.insert(name) {
                return refuse(format!(
                    "column \"{name}\" is named twice; give one of the two another name"
                ));
            }
        }
        if let DefinitionKind::Sharded { key, shards } = self.kind {
            if !(1..=MAX_SHARDS).contains(&shards) {
                return refuse(format!("{shards} shards; a table has 1 to {MAX_SHARDS}"));
            }
            if let Some(key) = key {
                self.check_shard_key(key)?;
            }
        }
        let mut sorted = HashSet::new();
        for column in &self.sort_key {
            let Some(field) = fields.get(*column) else {
                return Err(Error::internal(format!(
                    "table \"{}\": its sort key has column {column} of {}",
                    self.name,
                    fields.len()
                )));
            };
            if field.data_type().is_nested() {
                return refuse(format!(
                    "column \"{}\" of type {} cannot be in the sort key; choose columns that have an order",
                    field.name(),
                    field.data_type()
                ));
            }
            if !sorted.insert(column) {
                return refuse(format!(
                    "column \"{}\" is twice in the sort key",
                    field.name()
                ));
            }
        }
        Ok(())
    }

    fn check_shard_key(&self, key: usize) -> Result<()> {
        let fields = self.schema.fields();
        let Some(field) = fields.get(key) else {
            return Err(Error::internal(format!(
                "table \"{}\": its shard key is column {key} of {}",
                self.name,
                fields.len()
            )));
        };
        shard_key::check_key_type(field.data_type()).map_err(|error| {
            error.at(format!(
                "table \"{}\", column \"{}\"",
                self.name,
                field.name()
            ))
        })
    }

    /// The columns that segments are sorted by.
    pub(super) fn effective_sort_key(&self) -> Vec<usize> {
        match self.kind {
            DefinitionKind::Sharded { key, .. } if self.sort_key.is_empty() => {
                key.into_iter().collect()
            }
            _ => self.sort_key.clone(),
        }
    }
}
