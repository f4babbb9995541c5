//! Makes the rows of system.users, system.grants and system.tokens. Administrators see all rows.
//! Other users see only the rows that concern themselves.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, TimestampMicrosecondArray};
use volary_catalog::access::{Access, Object, PrincipalRecord, Rights, TokenRecord, UserLimits};
use volary_flight_proto::Result;

use super::kind::Kind;
use super::rows::{batch, optional_texts, texts};

/// Returns the rows of system.users: the users and roles.
pub(super) fn users(access: &Access, by: &Rights) -> Result<RecordBatch> {
    let all = shown(access, by);
    let roles = all.iter().map(|it| {
        let roles: Vec<_> = it.member_of.iter().map(String::as_str).collect();
        (!roles.is_empty()).then(|| roles.join(", "))
    });
    let is = |of: fn(&PrincipalRecord) -> bool| -> ArrayRef {
        Arc::new(all.iter().map(|it| Some(of(it))).collect::<BooleanArray>())
    };
    let limits = |of: fn(&UserLimits) -> Option<u64>| -> ArrayRef {
        let limits = all.iter().map(|it| of(&it.limits));
        let limits =
            limits.map(|limit| limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX)));
        Arc::new(limits.collect::<Int64Array>())
    };
    batch(
        Kind::Users,
        vec![
            texts(all.iter().map(|it| it.name.as_str())),
            texts(all.iter().map(|it| it.kind.name())),
            is(|it| it.admin),
            is(|it| it.password.is_some()),
            optional_texts(roles),
            limits(|limits| limits.max_queries),
            limits(|limits| limits.query_memory),
            times(all.iter().map(|it| Some(it.created_at_ms))),
        ],
    )
}

/// Returns the rows of system.grants: a row for each privilege and for each role that was granted
/// directly.
pub(super) fn grants(access: &Access, by: &Rights) -> Result<RecordBatch> {
    let (mut names, mut privileges) = (vec![], vec![]);
    let (mut kinds, mut objects) = (vec![], vec![]);
    for principal in shown(access, by) {
        for (object, granted) in &principal.grants {
            for privilege in granted {
                names.push(principal.name.clone());
                privileges.push(privilege.name());
                let (kind, object) = match object {
                    Object::Cluster => ("cluster", None),
                    Object::AllTables => ("all tables", None),
                    Object::Table(name) => ("table", Some(name.clone())),
                };
                kinds.push(kind);
                objects.push(object);
            }
        }
        for role in &principal.member_of {
            names.push(principal.name.clone());
            privileges.push("MEMBER");
            kinds.push("role");
            objects.push(Some(role.clone()));
        }
    }
    batch(
        Kind::Grants,
        vec![
            texts(names),
            texts(privileges),
            texts(kinds),
            optional_texts(objects),
        ],
    )
}

/// Returns the rows of system.tokens. They do not contain the secrets that clients show.
pub(super) fn tokens(access: &Access, by: &Rights) -> Result<RecordBatch> {
    let is_shown = |token: &&Arc<TokenRecord>| by.act_for(&token.user);
    let all: Vec<_> = access.tokens().filter(is_shown).collect();
    batch(
        Kind::Tokens,
        vec![
            texts(all.iter().map(|token| token.name.as_str())),
            texts(all.iter().map(|token| token.user.as_str())),
            times(all.iter().map(|token| Some(token.created_at_ms))),
            times(all.iter().map(|token| token.expires_at_ms)),
        ],
    )
}

/// Returns the users and roles that are shown to a user: the user itself and its roles, or all of
/// them for an administrator.
fn shown<'a>(access: &'a Access, by: &Rights) -> Vec<&'a Arc<PrincipalRecord>> {
    let mut own: BTreeSet<&str> = access.roles_of(by.user());
    if let Some(user) = access.user(by.user()) {
        own.insert(&user.name);
    }
    let is_shown =
        |it: &&Arc<PrincipalRecord>| by.is_unrestricted() || own.contains(it.name.as_str());
    access.principals().filter(is_shown).collect()
}

pub(super) fn times(milliseconds: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    let times: TimestampMicrosecondArray = milliseconds
        .map(|time| time.map(|time| time.saturating_mul(1000)))
        .collect();
    Arc::new(times.with_timezone("UTC"))
}
