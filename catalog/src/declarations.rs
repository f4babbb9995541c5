use std::collections::{BTreeMap, HashSet};

use arrow::datatypes::Schema;
use serde::{Deserialize, Serialize};
use volary_flight_proto::{Error, Result, SqlState};

use super::name;
use super::relation_name::RelationName;
use super::retention::Retention;

/// Maximum number of constraints of a table.
const MAX_CONSTRAINTS: usize = 100;

/// What a table declares besides the names and types of its columns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declarations {
    /// The values of columns that a write leaves out, by position of the column: SQL expressions. A
    /// column without an entry becomes NULL.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defaults: BTreeMap<usize, String>,
    /// The constraints, in the order in which they were declared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<Constraint>,
    /// Comments on columns, by position of the column.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub column_comments: BTreeMap<usize, String>,
    /// The comment on the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// How long the rows are kept. `None` if they are kept for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
}

/// A constraint of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constraint {
    /// The name of the constraint, which no other constraint of the table has.
    pub name: String,
    /// Positions of the columns that the constraint is about, in the order of the declaration.
    pub columns: Vec<usize>,
    /// What the constraint demands.
    pub kind: ConstraintKind,
}

/// What a constraint demands. Only checks are enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConstraintKind {
    /// The values of the columns identify a row.
    PrimaryKey,
    /// No two rows have the same values in the columns.
    Unique,
    /// The values of the columns are those of a row of another table.
    ForeignKey(ForeignKey),
    /// The condition is true or NULL for each row.
    Check {
        /// The condition: an SQL expression.
        condition: String,
        /// Says whether rows for which the condition is false are refused.
        enforced: bool,
    },
}

/// The table that a foreign key refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKey {
    /// The name of the referenced table.
    pub table: RelationName,
    /// Names of the referenced columns, as many as the constraint has columns.
    pub columns: Vec<String>,
    /// What is to happen when a referenced row is updated.
    pub on_update: ReferentialAction,
    /// What is to happen when a referenced row is deleted.
    pub on_delete: ReferentialAction,
}

/// What is to happen to rows when the row that they refer to changes. It is only kept and shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReferentialAction {
    /// The rows are changed or deleted, too.
    Cascade,
    /// The change is refused.
    Restrict,
    /// The referring columns become NULL.
    SetNull,
    /// The change is refused at the end of the statement.
    #[default]
    NoAction,
    /// The referring columns get their defaults.
    SetDefault,
}

impl ReferentialAction {
    /// Returns the action as SQL writes it.
    pub fn as_sql(self) -> &'static str {
        match self {
            Self::Cascade => "CASCADE",
            Self::Restrict => "RESTRICT",
            Self::SetNull => "SET NULL",
            Self::NoAction => "NO ACTION",
            Self::SetDefault => "SET DEFAULT",
        }
    }
}

impl Declarations {
    /// Returns whether a release that does not know declarations must not write to the table: it
    /// would write NULL for defaults, and rows that a check refuses.
    pub(super) fn change_writes(&self) -> bool {
        let is_enforced = |constraint: &Constraint| {
            matches!(
                constraint.kind,
                ConstraintKind::Check { enforced: true, .. }
            )
        };
        !self.defaults.is_empty() || self.constraints.iter().any(is_enforced)
    }

    /// Returns whether nothing is declared.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the primary key, if the table has one.
    pub fn primary_key(&self) -> Option<&Constraint> {
        self.constraints
            .iter()
            .find(|constraint| constraint.kind == ConstraintKind::PrimaryKey)
    }

    /// Returns the primary or unique key over these columns, in any order. `schema` has the columns
    /// of the table. A foreign key refers to this key.
    pub fn key_over(&self, schema: &Schema, columns: &[String]) -> Option<&Constraint> {
        let is_key_over = |constraint: &&Constraint| {
            matches!(
                constraint.kind,
                ConstraintKind::PrimaryKey | ConstraintKind::Unique
            ) && constraint.columns.len() == columns.len()
                && constraint
                    .columns
                    .iter()
                    .all(|column| columns.contains(schema.field(*column).name()))
        };
        self.constraints.iter().find(is_key_over)
    }

    /// Refuses declarations that do not fit a table with these columns.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with what is wrong, and `INTERNAL` for a column that does not exist.
    pub(super) fn check(&self, schema: &Schema) -> Result<()> {
        let columns = schema.fields().len();
        let constrained = self.constraints.iter().flat_map(|it| &it.columns);
        let with_default = self.defaults.keys().chain(self.column_comments.keys());
        if let Some(column) = constrained.chain(with_default).find(|it| **it >= columns) {
            return Err(Error::internal(format!(
                "a declaration refers to column {column}, but there are {columns} columns"
            )));
        }
        if self.constraints.len() > MAX_CONSTRAINTS {
            return Err(Error::invalid(format!(
                "a table has at most {MAX_CONSTRAINTS} constraints, not {}; leave some out",
                self.constraints.len()
            )));
        }
        if let Some(retention) = &self.retention {
            retention.check(schema)?;
        }
        let mut names = HashSet::new();
        let mut has_primary_key = false;
        for constraint in &self.constraints {
            name::check(&constraint.name)?;
            if !names.insert(constraint.name.as_str()) {
                return Err(Error::invalid(format!(
                    "two constraints are named \"{}\"; rename one of them",
                    constraint.name
                ))
                .with_sqlstate(SqlState::DuplicateObject));
            }
            constraint.check_columns(schema)?;
            if constraint.kind == ConstraintKind::PrimaryKey
                && std::mem::replace(&mut has_primary_key, true)
            {
                return Err(Error::invalid(
                    "a table has at most one primary key; declare other keys as UNIQUE",
                )
                .with_sqlstate(SqlState::InvalidTableDefinition));
            }
        }
        Ok(())
    }
}

impl Constraint {
    fn check_columns(&self, schema: &Schema) -> Result<()> {
        let mut columns = HashSet::new();
        if let Some(twice) = self.columns.iter().find(|column| !columns.insert(**column)) {
            return Err(Error::invalid(format!(
                "constraint \"{}\" names column \"{}\" twice; name it once",
                self.name,
                schema.field(*twice).name()
            ))
            .with_sqlstate(SqlState::DuplicateColumn));
        }
        if let ConstraintKind::ForeignKey(key) = &self.kind
            && key.columns.len() != self.columns.len()
        {
            return Err(Error::invalid(format!(
                "foreign key \"{}\" has {} columns, but refers to {} columns of {}; name as many",
                self.name,
                self.columns.len(),
                key.columns.len(),
                key.table
            ))
            .with_sqlstate(SqlState::InvalidForeignKey));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::datatypes::{DataType, Field};

    use super::*;

    fn constraint(name: &str, columns: &[usize], kind: ConstraintKind) -> Constraint {
        Constraint {
            name: name.to_owned(),
            columns: columns.to_vec(),
            kind,
        }
    }

    fn check(constraints: Vec<Constraint>) -> Result<()> {
        let schema = Schema::new(vec![
            Field::new("a", DataType::Int64, false),
            Field::new("b", DataType::Int64, true),
        ]);
        let declarations = Declarations {
            constraints,
            ..Declarations::default()
        };
        declarations.check(&schema)
    }

    #[test]
    fn constraints_that_cannot_be_are_refused() {
        use ConstraintKind::{PrimaryKey, Unique};
        check(vec![
            constraint("k", &[0], PrimaryKey),
            constraint("u", &[1, 0], Unique),
        ])
        .unwrap();
        let key = ForeignKey {
            table: RelationName::in_public("t"),
            columns: vec!["a".to_owned()],
            on_update: ReferentialAction::default(),
            on_delete: ReferentialAction::Cascade,
        };
        for (constraints, part) in [
            (
                vec![
                    constraint("k", &[0], PrimaryKey),
                    constraint("l", &[1], PrimaryKey),
                ],
                "at most one primary key",
            ),
            (
                vec![constraint("k", &[0], Unique), constraint("k", &[1], Unique)],
                "named \"k\"",
            ),
            (vec![constraint("k", &[1, 1], Unique)], "column \"b\" twice"),
            (
                vec![constraint("f", &[0, 1], ConstraintKind::ForeignKey(key))],
                "refers to 1 columns",
            ),
            (
                (0..=MAX_CONSTRAINTS)
                    .map(|number| constraint(&format!("u{number}"), &[0], Unique))
                    .collect(),
                "at most 100 constraints",
            ),
        ] {
            let error = check(constraints).unwrap_err();
            assert!(error.message().contains(part), "{error}");
        }
    }

    #[test]
    fn a_key_over_columns_is_found_whatever_their_order() {
        let schema = Schema::new(vec![
            Field::new("a", DataType::Int64, false),
            Field::new("b", DataType::Int64, true),
        ]);
        let check = ConstraintKind::Check {
            condition: "a > b".to_owned(),
            enforced: true,
        };
        let declarations = Declarations {
            constraints: vec![
                constraint("c", &[0, 1], check),
                constraint("k", &[0], ConstraintKind::PrimaryKey),
                constraint("u", &[0, 1], ConstraintKind::Unique),
            ],
            ..Declarations::default()
        };
        let found = |columns: &[&str]| {
            let columns: Vec<_> = columns.iter().map(|it| (*it).to_owned()).collect();
            let key = declarations.key_over(&schema, &columns)?;
            Some(key.name.as_str())
        };
        assert_eq!(found(&["a"]), Some("k"));
        assert_eq!(found(&["b", "a"]), Some("u"));
        assert_eq!(found(&["b"]), None);
    }

    #[test]
    fn declarations_are_read_as_they_were_written() {
        let declarations = Declarations {
            retention: Some(Retention {
                time_column: 1,
                keep: Duration::from_millis(1500),
            }),
            defaults: BTreeMap::from([(1, "now()".to_owned())]),
            constraints: vec![
                constraint("t_pkey", &[0], ConstraintKind::PrimaryKey),
                constraint(
                    "positive",
                    &[1],
                    ConstraintKind::Check {
                        condition: "b > 0".to_owned(),
                        enforced: true,
                    },
                ),
            ],
            column_comments: BTreeMap::new(),
            comment: Some("birds".to_owned()),
        };
        let text = r#"{"defaults":{"1":"now()"},"constraints":[{"name":"t_pkey","columns":[0],"kind":"primary_key"},{"name":"positive","columns":[1],"kind":{"check":{"condition":"b > 0","enforced":true}}}],"comment":"birds","retention":{"time_column":1,"keep":{"secs":1,"nanos":500000000}}}"#;
        assert_eq!(serde_json::to_string(&declarations).unwrap(), text);
        assert_eq!(
            serde_json::from_str::<Declarations>(text).unwrap(),
            declarations
        );
        assert!(declarations.change_writes());
        assert!(!Declarations::default().change_writes());
    }
}
