//! Makes the rows of system.limits: the limits of this gateway, and how much of each is in use.
//! `docs/limits.md` is made from the same rows.

/// Lists the limits of each user.
mod by_user;
/// Describes a limit, and tells how much of it is in use.
mod limit;
/// Lists the limits that apply to all users.
mod of_gateway;

use arrow::array::RecordBatch;
use volary_catalog::access::{Access, Rights};
use volary_flight_proto::Result;

use super::kind::Kind;
use super::rows::{batch, numbers, optional_numbers, optional_texts, texts};
use crate::statements::Statements;
use by_user::by_user;
pub use limit::{Limit, Usage};
pub use of_gateway::limits_of;

/// Returns the rows of system.limits: the limits of this gateway, and the limits of each user that
/// a user with the rights `by` may see.
pub(super) fn rows(
    usage: &Usage,
    statements: &Statements,
    access: &Access,
    by: &Rights,
) -> Result<RecordBatch> {
    let mut limits = limits_of(&usage.config);
    limits.extend(by_user(&usage.config, statements, access, by));
    let in_use = limits.iter().map(|limit| limit.in_use(usage, statements));
    batch(
        Kind::Limits,
        vec![
            texts(limits.iter().map(|limit| limit.scope)),
            texts(limits.iter().map(|limit| limit.name)),
            optional_texts(limits.iter().map(|limit| limit.setting.map(str::to_owned))),
            numbers(limits.iter().map(|limit| limit.most)),
            texts(limits.iter().map(|limit| limit.unit)),
            optional_numbers(in_use),
            texts(limits.iter().map(|limit| limit.beyond)),
            optional_texts(
                limits
                    .iter()
                    .map(|limit| limit.user.as_ref().map(|user| user.name.clone())),
            ),
        ],
    )
}
