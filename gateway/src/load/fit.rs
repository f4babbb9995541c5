/// Casts columns, either exactly or with rounding.
mod cast;
/// Explains why rows do not fit.
mod misfit;
/// Refuses values that are outside the range of their type.
mod range;
/// Parses texts as values, without cutting off digits.
mod text;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::kernels::zip::zip;
use arrow::datatypes::{DataType, SchemaRef};
use volary_exec::instants::cast_in_zone;
use volary_flight_proto::{Error, Result, SqlState};

use super::defaults::Defaults;

pub(crate) use misfit::Misfit;
pub(crate) use text::is_parsed_type;

/// Returns the rows with exactly the table's columns. The columns of the batch are matched by
/// position, and cast if their types differ. Numbers are rounded as casts in a query round them.
///
/// # Errors
/// `INVALID_ARGUMENT` for a value that does not fit the column's type, and for a NULL in a column
/// that is NOT NULL. The error names the column.
pub(crate) fn fit_by_position(
    table: &str,
    schema: &SchemaRef,
    batch: &RecordBatch,
) -> Result<RecordBatch> {
    if batch.num_columns() != schema.fields().len() {
        return Err(Error::invalid(format!(
            "table {table} has {} columns, but the rows have {}",
            schema.fields().len(),
            batch.num_columns()
        )));
    }
    let columns = Columns {
        values: batch.columns().iter().cloned().map(Some).collect(),
        presence: HashMap::new(),
        defaults: &Defaults::default(),
    };
    let columns = assemble(schema, columns, batch.num_rows(), cast::cast_rounding);
    columns.map_err(|misfit| misfit.in_table(table))
}

/// Assigns the columns of a file to the columns of a table.
#[derive(Debug, Clone)]
pub(crate) struct ColumnMapping {
    /// Positions in the file, one for each column of the table. `None` for a column that is not
    /// loaded or that the file does not have.
    file_positions: Vec<Option<usize>>,
    /// Positions of the table's columns that are to be loaded.
    loaded_columns: Vec<usize>,
    /// The time zone of texts, dates and times without one.
    zone: Arc<str>,
    /// The values of columns that the rows do not have.
    defaults: Defaults,
    /// Positions of columns of the table, each with the position in the batches of the column that
    /// says which rows have a value for it. See [`Self::with_presence`].
    presence: Vec<(usize, usize)>,
}

impl ColumnMapping {
    /// Assigns columns with these names to the table's columns. If `chosen` lists columns, only
    /// these are loaded, and the other columns of the file are ignored. If it is empty, each column
    /// of the file must be a column of the table. Other columns of the table get their `defaults`.
    /// Texts, dates and times without a time zone become instants in `zone`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a column that the table does not have, and for a column that occurs
    /// twice.
    pub(crate) fn from_names(
        table: &str,
        schema: &SchemaRef,
        names: &[String],
        chosen: &[String],
        zone: Arc<str>,
        defaults: Defaults,
    ) -> Result<Self> {
        let wanted = chosen_positions(table, schema, chosen)?;
        let mut in_file: Vec<Option<usize>> = vec![None; schema.fields().len()];
        for (position, name) in names.iter().enumerate() {
            let column = match position_of(table, schema, name) {
                Ok(column) if wanted.contains(&column) => column,
                Err(error) if chosen.is_empty() => return Err(error),
                Ok(_) | Err(_) => continue,
            };
            if let Some(first) = in_file[column].replace(position) {
                return Err(Error::invalid(format!(
                    "columns {} and {name} of the rows both match column {} of table {table}; leave one out",
                    names[first],
                    schema.field(column).name()
                )));
            }
        }
        Ok(Self {
            file_positions: in_file,
            loaded_columns: wanted,
            zone,
            defaults,
            presence: Vec::new(),
        })
    }

    /// Adds a column to those of the file, for each column with a default: it says which rows have
    /// a value. Rows without a value get the default, while a NULL that is written stays NULL.
    /// Returns the positions in the file of the columns with a default. `file_columns` is the
    /// number of columns of the file.
    pub(crate) fn with_presence(mut self, file_columns: usize) -> (Self, Vec<usize>) {
        let with_default = self
            .loaded_columns()
            .filter(|(column, _)| self.defaults.has_default(*column));
        let with_default: Vec<_> = with_default
            .filter_map(|(column, in_file)| Some((column, in_file?)))
            .collect();
        let columns = with_default.iter().map(|(column, _)| *column);
        self.presence = columns.zip(file_columns..).collect();
        let in_file = with_default.into_iter().map(|(_, in_file)| in_file);
        (self, in_file.collect())
    }

    /// Returns the position in the table of each column that is to be loaded, and its position in
    /// the file if the file has it.
    pub(crate) fn loaded_columns(&self) -> impl Iterator<Item = (usize, Option<usize>)> {
        let wanted = self.loaded_columns.iter();
        wanted.map(|column| (*column, self.file_positions[*column]))
    }

    /// Returns the position in the table of a column of the file, or `None` if the column is not
    /// loaded.
    pub(crate) fn table_position(&self, position: usize) -> Option<usize> {
        let mut in_file = self.file_positions.iter();
        in_file.position(|in_file| *in_file == Some(position))
    }

    /// Returns the rows of a file with exactly the table's columns. Columns that are not loaded
    /// from the file have their defaults. No value is changed.
    ///
    /// # Errors
    /// A value that the column's type cannot hold unchanged, or a NULL in a NOT NULL column.
    pub(crate) fn fit(
        &self,
        schema: &SchemaRef,
        batch: &RecordBatch,
    ) -> Result<RecordBatch, Misfit> {
        let file_column =
            |position: &Option<usize>| position.map(|at| Arc::clone(batch.column(at)));
        let columns = self.file_positions.iter().map(file_column).collect();
        let cast = |column: &ArrayRef, wanted: &DataType| {
            cast_in_zone(column, wanted, &self.zone, cast::cast_exact)
        };
        let columns = Columns {
            values: columns,
            presence: self.presence_in(batch),
            defaults: &self.defaults,
        };
        assemble(schema, columns, batch.num_rows(), cast)
    }

    /// Returns which rows have a value, by position of the table's column.
    fn presence_in(&self, batch: &RecordBatch) -> HashMap<usize, BooleanArray> {
        let presence = self.presence.iter();
        let presence =
            presence.map(|(column, at)| (*column, batch.column(*at).as_boolean().clone()));
        presence.filter(|(_, it)| it.has_false()).collect()
    }
}

/// Returns the positions of the columns that a statement lists, or those of all columns if it lists
/// none.
fn chosen_positions(table: &str, schema: &SchemaRef, chosen: &[String]) -> Result<Vec<usize>> {
    if chosen.is_empty() {
        return Ok((0..schema.fields().len()).collect());
    }
    let mut positions = Vec::with_capacity(chosen.len());
    for name in chosen {
        let position = position_of(table, schema, name)?;
        if positions.contains(&position) {
            return Err(
                Error::invalid(format!("column {name} is listed twice; list it once"))
                    .with_sqlstate(SqlState::DuplicateColumn),
            );
        }
        positions.push(position);
    }
    Ok(positions)
}

/// Returns the position in the table of a column with this name. Letter case is ignored, unless a
/// column has exactly this name.
///
/// # Errors
/// `INVALID_ARGUMENT` if the table has no such column, or if several columns match.
pub fn position_of(table: &str, schema: &SchemaRef, name: &str) -> Result<usize> {
    if let Ok(position) = schema.index_of(name) {
        return Ok(position);
    }
    let candidates: Vec<usize> = schema
        .fields()
        .iter()
        .enumerate()
        .filter(|(_, field)| field.name().eq_ignore_ascii_case(name))
        .map(|(position, _)| position)
        .collect();
    let names: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    match candidates.as_slice() {
        [position] => Ok(*position),
        [] => Err(Error::invalid(format!(
            "column {name} does not exist in table {table}, which has {}; leave it out, or add it to the table",
            names.join(", ")
        ))
        .with_sqlstate(SqlState::UndefinedColumn)),
        _ => Err(Error::invalid(format!(
            "column {name} matches several columns of table {table}, which has {}; write the name with the same upper and lower case as in the table",
            names.join(", ")
        ))
        .with_sqlstate(SqlState::AmbiguousColumn)),
    }
}

/// Columns that are fitted, in the order of the table.
struct Columns<'a> {
    /// The values. `None` for a column of which the rows have no values.
    values: Vec<Option<ArrayRef>>,
    /// Says which rows have a value, for columns where some have none.
    presence: HashMap<usize, BooleanArray>,
    defaults: &'a Defaults,
}

fn assemble(
    schema: &SchemaRef,
    columns: Columns<'_>,
    rows: usize,
    cast: impl Fn(&ArrayRef, &DataType) -> Result<ArrayRef, Misfit>,
) -> Result<RecordBatch, Misfit> {
    let mut fitted = Vec::with_capacity(columns.values.len());
    for (position, (field, column)) in schema.fields().iter().zip(columns.values).enumerate() {
        let default = || {
            let values = columns.defaults.values(position, field, rows);
            values.map_err(|error| Misfit::of_default(&error).in_column(field.name()))
        };
        let column = match column {
            None => default()?,
            Some(column) => {
                let fitted = cast(&column, field.data_type());
                let checked = fitted.and_then(|column| range::check(&column).map(|()| column));
                let column = checked.map_err(|misfit| misfit.in_column(field.name()))?;
                match columns.presence.get(&position) {
                    None => column,
                    Some(presence) => zip(presence, &column, &default()?)
                        .map_err(|error| Misfit::of_rows(error).in_column(field.name()))?,
                }
            }
        };
        if !field.is_nullable() && column.null_count() > 0 {
            let row = (0..rows).find(|row| column.is_null(*row));
            let misfit = Misfit::of_value(
                row.unwrap_or_default(),
                SqlState::NotNullViolation,
                "a NULL in a column that is NOT NULL",
            );
            return Err(misfit.in_column(field.name()));
        }
        fitted.push(column);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), fitted, &options).map_err(Misfit::of_rows)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int32Array, Int64Array, StringArray};
    use arrow::datatypes::{Field, Schema};

    use super::*;

    fn table() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("k", DataType::Int32, false),
            Field::new("name", DataType::Utf8View, true),
        ]))
    }

    fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(
            columns
                .into_iter()
                .map(|(name, column)| (name, column, true)),
        )
        .unwrap()
    }

    fn columns(names: &[&str], chosen: &[&str]) -> Result<ColumnMapping> {
        let owned = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        ColumnMapping::from_names(
            "t",
            &table(),
            &owned(names),
            &owned(chosen),
            "UTC".into(),
            Defaults::default(),
        )
    }

    fn by_name(batch: &RecordBatch) -> Result<RecordBatch> {
        let schema = batch.schema();
        let names: Vec<&str> = schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        let fitted = columns(&names, &[])?.fit(&table(), batch);
        fitted.map_err(|misfit| misfit.in_table("t"))
    }

    #[test]
    fn columns_are_found_by_name_cast_and_filled() {
        let batch = rows(vec![("K", Arc::new(Int64Array::from(vec![1, 2])))]);
        let fitted = by_name(&batch).unwrap();
        assert_eq!(fitted.schema(), table());
        assert_eq!(fitted.column(1).null_count(), 2);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let text = |result: Result<RecordBatch>| result.unwrap_err().text();
        let large = rows(vec![("k", Arc::new(Int64Array::from(vec![1_i64 << 40])))]);
        assert!(text(by_name(&large)).contains("table t, column k: BIGINT does not fit"));
        let null = rows(vec![("k", Arc::new(Int32Array::from(vec![None])))]);
        assert!(text(by_name(&null)).contains("NOT NULL"));
        let other = rows(vec![("x", Arc::new(StringArray::from(vec!["a"])))]);
        assert!(text(by_name(&other)).contains("column x does not exist in table t"));
        let few = rows(vec![("k", Arc::new(Int32Array::from(vec![1])))]);
        assert!(text(fit_by_position("t", &table(), &few)).contains("2 columns"));
    }

    #[test]
    fn one_column_is_not_loaded_from_two() {
        let error = columns(&["k", "name", "K"], &[]).unwrap_err();
        assert!(
            error.message().contains("columns k and K of the rows"),
            "{error}"
        );
        let error = columns(&["k", "name"], &["k", "K"]).unwrap_err();
        assert!(error.message().contains("listed twice"), "{error}");
    }

    #[test]
    fn a_list_chooses_among_the_files_columns() {
        let columns = columns(&["x", "name", "k"], &["K"]).unwrap();
        assert_eq!(
            (columns.table_position(2), columns.table_position(1)),
            (Some(0), None)
        );
        assert_eq!(columns.loaded_columns().collect::<Vec<_>>(), [(0, Some(2))]);
    }

    #[test]
    fn a_query_rounds_where_a_file_is_refused() {
        let fraction = || Arc::new(Float64Array::from(vec![1.0, 1.7])) as ArrayRef;
        let error = by_name(&rows(vec![("k", fraction())])).unwrap_err();
        assert!(
            error
                .message()
                .contains("column k: 1.7 does not fit INTEGER"),
            "{error}"
        );
        let named = StringArray::from(vec!["a", "b"]);
        let of_query = rows(vec![("k", fraction()), ("name", Arc::new(named))]);
        fit_by_position("t", &table(), &of_query).unwrap();
    }
}
