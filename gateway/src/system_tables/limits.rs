//! The file `docs/limits.md` is made from the same limits as system.limits.

/// Lists the limits of a gateway that apply to all users.
mod gateway_limits;
/// Describes a limit of a gateway, and tells how much of it is in use.
mod limit;
/// Lists the limits of each user, and how much of them is in use.
mod user_limits;

use volary_flight_proto::Result;

use super::column::Column;
use super::sources::SystemTableSources;
use super::table::SystemTable;
pub use gateway_limits::gateway_limits;
pub use limit::GatewayLimit;
pub(crate) use limit::LimitUsageSources;
use user_limits::limits_by_user;

pub(super) struct LimitsTable;

pub(super) struct LimitInUse {
    limit: GatewayLimit,
    in_use: Option<u64>,
}

impl SystemTable for LimitsTable {
    type Row = LimitInUse;

    const NAME: &'static str = "limits";

    const COLUMNS: &'static [Column<LimitInUse>] = &[
        Column::text("scope", |row| row.limit.scope.to_owned()),
        Column::text("name", |row| row.limit.name.to_owned()),
        Column::optional_text("setting", |row| row.limit.setting.map(str::to_owned)),
        Column::number("allowed", |row| row.limit.value),
        Column::text("unit", |row| row.limit.unit.to_owned()),
        Column::optional_number("in_use", |row| row.in_use),
        Column::text("beyond", |row| row.limit.beyond.to_owned()),
        Column::optional_text("user_name", |row| {
            row.limit.user.as_ref().map(|user| user.name.clone())
        }),
    ];

    async fn rows(sources: &SystemTableSources) -> Result<Vec<LimitInUse>> {
        let (usage, statements) = (&sources.usage, &sources.statements);
        let access = sources.catalog.access();
        let mut limits = gateway_limits(&usage.config);
        limits.extend(limits_by_user(
            &usage.config,
            statements,
            access,
            &sources.rights,
        ));
        let rows = limits.into_iter().map(|limit| LimitInUse {
            in_use: limit.in_use(usage, statements, &sources.catalog),
            limit,
        });
        Ok(rows.collect())
    }
}
