//! Administrators see all rows of system.grants. Other users see their own privileges and roles,
//! and those of their roles.

use volary_catalog::access::{GrantObject, PrincipalRecord};
use volary_flight_proto::Result;

use super::column::Column;
use super::sources::SystemTableSources;
use super::table::SystemTable;

pub(super) struct Grants;

/// A privilege or a role that was granted to a user or role.
pub(super) struct Grant {
    grantee: String,
    privilege: &'static str,
    object_kind: &'static str,
    object: Option<String>,
    schema_name: Option<String>,
}

impl SystemTable for Grants {
    type Row = Grant;

    const NAME: &'static str = "grants";

    const COLUMNS: &'static [Column<Grant>] = &[
        Column::text("grantee", |grant| grant.grantee.clone()),
        Column::text("privilege", |grant| grant.privilege.to_owned()),
        Column::text("object_kind", |grant| grant.object_kind.to_owned()),
        Column::optional_text("object", |grant| grant.object.clone()),
        Column::optional_text("schema_name", |grant| grant.schema_name.clone()),
    ];

    async fn rows(sources: &SystemTableSources) -> Result<Vec<Grant>> {
        let mut grants = Vec::new();
        for principal in sources.principals() {
            add_grants(&mut grants, principal);
        }
        Ok(grants)
    }
}

fn add_grants(grants: &mut Vec<Grant>, principal: &PrincipalRecord) {
    for (object, granted) in &principal.grants {
        let (object_kind, object, schema) = match object {
            GrantObject::Cluster => ("cluster", None, None),
            GrantObject::AllTables => ("all tables", None, None),
            GrantObject::Table(name) => ("table", Some(name.name()), Some(name.schema())),
            GrantObject::Schema(name) => {
                let name = name.as_str();
                ("schema", Some(name), Some(name))
            }
        };
        grants.extend(granted.iter().map(|privilege| Grant {
            grantee: principal.name.clone(),
            privilege: privilege.name(),
            object_kind,
            object: object.map(str::to_owned),
            schema_name: schema.map(str::to_owned),
        }));
    }
    grants.extend(principal.member_of.iter().map(|role| Grant {
        grantee: principal.name.clone(),
        privilege: "MEMBER",
        object_kind: "role",
        object: Some(role.clone()),
        schema_name: None,
    }));
}
