use super::super::column::Column;
use super::table::{InformationTable, Listed};

/// There are no sequences. Tools such as Hibernate ask for them before anything else.
pub(super) struct Sequences;

impl InformationTable for Sequences {
    type Row = ();

    const NAME: &'static str = "sequences";

    const COLUMNS: &'static [Column<()>] = &[
        Column::optional_text("sequence_catalog", |()| None),
        Column::optional_text("sequence_schema", |()| None),
        Column::optional_text("sequence_name", |()| None),
        Column::optional_text("data_type", |()| None),
        Column::optional_text("start_value", |()| None),
        Column::optional_text("minimum_value", |()| None),
        Column::optional_text("maximum_value", |()| None),
        Column::optional_text("increment", |()| None),
        Column::optional_text("cycle_option", |()| None),
    ];

    fn rows(_: &Listed) -> Vec<()> {
        Vec::new()
    }
}
