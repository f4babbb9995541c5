use std::collections::HashSet;

use arrow::datatypes::SchemaRef;
use volary_exec::shard_key;
use volary_flight_proto::write::SHARD_COLUMN;
use volary_flight_proto::{Error, Result};

use crate::Declarations;
use crate::relation_name::RelationName;

/// Maximum number of shards of a table. Each shard has its own files, and tickets list the shards,
/// so more shards would only add costs.
pub(crate) const MAX_SHARDS: u32 = 65_536;

/// A table that is to be created.
#[derive(Debug, Clone)]
pub struct TableDefinition {
    /// The name of the table, normalised by the rules of SQL.
    pub name: RelationName,
    /// The columns of the table.
    pub schema: SchemaRef,
    /// The distribution of the table's rows.
    pub kind: DefinitionKind,
    /// Positions of the columns that segments are sorted by. If it is empty, segments are sorted by
    /// the shard key.
    pub sort_key: Vec<usize>,
    /// Defaults, constraints and comments.
    pub declarations: Declarations,
}

/// The distribution of the rows of a table that is to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionKind {
    /// The rows are distributed over shards.
    Sharded {
        /// Position of the shard key in the schema. The hash of the shard key decides the shard of
        /// a row. `None` means that a row may be in any shard.
        key: Option<usize>,
        /// Number of shards, 1 to `MAX_SHARDS`.
        shards: u32,
    },
    /// Each live worker gets a copy of all rows.
    Reference,
}

/// What to do if a table of the same name exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// The existing table stays, and the statement fails.
    Fail,
    /// The existing table stays, and the new one is not created.
    Keep,
    /// The new table replaces the existing one in one step, when the new one is complete.
    Replace,
}

impl TableDefinition {
    /// Refuses a definition that cannot be a table.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the table and the column; `INTERNAL` if a key refers to no column.
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::invalid(format!("table \"{}\": {what}", self.name)));
        if self.name.name().is_empty() {
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
                    "two columns are named \"{name}\"; rename one of them"
                ));
            }
        }
        if let DefinitionKind::Sharded { key, shards } = self.kind {
            if !(1..=MAX_SHARDS).contains(&shards) {
                return refuse(format!(
                    "it cannot have {shards} shards; a table has 1 to {MAX_SHARDS}"
                ));
            }
            if let Some(key) = key {
                self.check_shard_key(key)?;
            }
        }
        let mut sorted = HashSet::new();
        for column in &self.sort_key {
            let Some(field) = fields.get(*column) else {
                return Err(Error::internal(format!(
                    "table \"{}\": its sort key refers to column {column}, but it has {} columns",
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
                    "column \"{}\" is in the sort key twice; name it once",
                    field.name()
                ));
            }
        }
        self.declarations
            .check(&self.schema)
            .map_err(|error| error.at(format!("table \"{}\"", self.name)))
    }

    fn check_shard_key(&self, key: usize) -> Result<()> {
        let fields = self.schema.fields();
        let Some(field) = fields.get(key) else {
            return Err(Error::internal(format!(
                "table \"{}\": its shard key refers to column {key}, but it has {} columns",
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

    /// Returns the positions of the columns that segments are sorted by.
    pub(super) fn effective_sort_key(&self) -> Vec<usize> {
        match self.kind {
            DefinitionKind::Sharded { key, .. } if self.sort_key.is_empty() => {
                key.into_iter().collect()
            }
            _ => self.sort_key.clone(),
        }
    }
}
