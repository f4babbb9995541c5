use volary_catalog::ConstraintKind;

use super::super::column::Column;
use super::constraints::{constraints, referenced_key};
use super::table::{InformationTable, Listed};

pub(super) struct ReferentialConstraints;

/// A foreign key, and the key that it refers to.
pub(super) struct Reference {
    catalog: String,
    schema: String,
    name: String,
    /// Schema and name of the referenced key. `None` if the referenced columns are not declared as
    /// a key.
    referenced_key: Option<(String, String)>,
    update_rule: &'static str,
    delete_rule: &'static str,
}

impl InformationTable for ReferentialConstraints {
    type Row = Reference;

    const NAME: &'static str = "referential_constraints";

    const COLUMNS: &'static [Column<Reference>] = &[
        Column::text("constraint_catalog", |it| it.catalog.clone()),
        Column::text("constraint_schema", |it| it.schema.clone()),
        Column::text("constraint_name", |it| it.name.clone()),
        Column::optional_text("unique_constraint_catalog", |it| {
            it.referenced_key.as_ref().map(|_| it.catalog.clone())
        }),
        Column::optional_text("unique_constraint_schema", |it| {
            Some(it.referenced_key.as_ref()?.0.clone())
        }),
        Column::optional_text("unique_constraint_name", |it| {
            Some(it.referenced_key.as_ref()?.1.clone())
        }),
        Column::text("match_option", |_| "NONE".to_owned()),
        Column::text("update_rule", |it| it.update_rule.to_owned()),
        Column::text("delete_rule", |it| it.delete_rule.to_owned()),
    ];

    fn rows(listed: &Listed) -> Vec<Reference> {
        let all = constraints(&listed.tables);
        let references = all.iter().filter_map(|constraint| {
            let ConstraintKind::ForeignKey(key) = &constraint.kind else {
                return None;
            };
            Some(Reference {
                catalog: constraint.catalog.clone(),
                schema: constraint.schema.clone(),
                name: constraint.name.clone(),
                referenced_key: referenced_key(&listed.tables, constraint)
                    .map(|it| (it.schema.clone(), it.name.clone())),
                update_rule: key.on_update.as_sql(),
                delete_rule: key.on_delete.as_sql(),
            })
        });
        references.collect()
    }
}
