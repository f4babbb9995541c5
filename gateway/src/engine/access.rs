use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, StringArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use volary_catalog::RelationName;
use volary_catalog::access::{
    Grant, GrantObject, NewPrincipal, PrincipalChange, PrincipalKind, Rights, TokenRecord,
};
use volary_flight_proto::{Error, Result};
use volary_node::secret;

use super::context::StatementContext;
use super::{Completion, Engine, StatementOutcome};
use crate::login::{check_new_password, tokens};
use crate::sql::access::{AccessStatement, WrittenGrant};
use crate::sql::names::WrittenName;

/// Returns the columns of the rows that the statement returns. `None` if it returns no rows.
pub(super) fn answer_columns(statement: &AccessStatement) -> Option<SchemaRef> {
    matches!(statement, AccessStatement::CreateToken { .. }).then(token_columns)
}

/// Runs the statement.
///
/// # Errors
/// `PERMISSION_DENIED`, `NOT_FOUND` and `ALREADY_EXISTS`. Also returns the catalog's errors.
pub(super) async fn run(
    engine: &Engine,
    context: &StatementContext,
    statement: AccessStatement,
) -> Result<StatementOutcome> {
    let (catalog, by) = (&engine.catalog, &context.rights);
    let mut changed = true;
    match statement {
        AccessStatement::Create {
            kind,
            name,
            if_not_exists,
            password,
            admin,
            limits,
        } => {
            // The right is checked first, so that no password is hashed for a user without the
            // right.
            by.check_admin("create users and roles")?;
            if kind == PrincipalKind::User {
                secret::check_for_users(engine.cluster.has_secret())?;
            }
            let password = hash_password(engine, password).await?;
            let principal = NewPrincipal {
                name,
                kind,
                password,
                admin,
                limits,
            };
            let creating = catalog.create_principal(principal, if_not_exists, by);
            changed = creating.await?;
        }
        AccessStatement::Alter {
            kind,
            name,
            password,
            admin,
            limits,
        } => {
            let password = hash_password(engine, password).await?;
            let change = PrincipalChange {
                name,
                kind,
                password,
                admin,
                limits,
            };
            catalog.change_principal(change, by).await?;
        }
        AccessStatement::Drop {
            kind,
            name,
            if_exists,
        } => {
            let dropping = catalog.drop_principal(kind, &name, if_exists, by);
            changed = dropping.await?;
        }
        AccessStatement::Grant {
            grants,
            names,
            is_revoke: revoke,
        } => {
            let grants = grants.into_iter().map(|grant| match grant {
                WrittenGrant::OnRelation(name, privileges) => {
                    let name = lasting_relation(context, &name)?;
                    let object = GrantObject::Table(name);
                    Ok(Grant::Privileges(object, privileges))
                }
                WrittenGrant::Other(grant) => Ok(grant),
            });
            let grants = grants.collect::<Result<_>>()?;
            catalog.grant(grants, names, revoke, by).await?;
        }
        AccessStatement::CreateToken {
            name,
            user,
            valid_for,
        } => return create_token(engine, by, name, user, valid_for).await,
        AccessStatement::DropToken { name, if_exists } => {
            catalog.drop_token(&name, if_exists, by).await?;
        }
        AccessStatement::SetOwner { table, owner } => {
            let table = lasting_relation(context, &table)?;
            catalog.set_owner(&table, &owner, by).await?;
        }
        AccessStatement::SetSchemaOwner { schema, owner } => {
            catalog.set_schema_owner(&schema, &owner, by).await?;
        }
    }
    Ok(StatementOutcome::Done(Completion::of_change(changed)))
}

/// Returns the full name of a table or view that is shared or given to another owner.
///
/// # Errors
/// `INVALID_ARGUMENT` for a temporary one, which only its session can reach.
fn lasting_relation(context: &StatementContext, name: &WrittenName) -> Result<RelationName> {
    let name = context.user_relation(name)?;
    if name.is_temporary() {
        return Err(Error::invalid(format!(
            "{name} is temporary: only its own session can use it, so it cannot be granted or given to another owner"
        )));
    }
    Ok(name)
}

async fn hash_password(engine: &Engine, password: Option<String>) -> Result<Option<String>> {
    let Some(password) = password else {
        return Ok(None);
    };
    check_new_password(&password)?;
    engine.passwords.hash(&password).await.map(Some)
}

/// Creates a token. The answer contains the token, which is not shown again.
async fn create_token(
    engine: &Engine,
    by: &Arc<Rights>,
    name: String,
    user: Option<String>,
    valid_for: Option<Duration>,
) -> Result<StatementOutcome> {
    let user = user.unwrap_or_else(|| by.user().to_owned());
    let token = tokens::new();
    let hash = tokens::hash(&token).ok_or_else(|| Error::internal("a new token has no hash"))?;
    let now = chrono::Utc::now();
    let expires_at = valid_for
        .map(|time| {
            chrono::Duration::from_std(time)
                .ok()
                .and_then(|time| now.checked_add_signed(time))
                .ok_or_else(|| {
                    Error::invalid("the token would be valid for too long; leave VALID FOR out")
                })
        })
        .transpose()?;
    let expires_at_ms = expires_at.map(|time| time.timestamp_millis());
    let record = TokenRecord {
        name: name.clone(),
        user: user.clone(),
        hash,
        created_at_ms: now.timestamp_millis(),
        expires_at_ms,
    };
    engine.catalog.create_token(record, by).await?;
    let expires: TimestampMillisecondArray = [expires_at_ms].into_iter().collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![token])),
        Arc::new(StringArray::from(vec![name])),
        Arc::new(StringArray::from(vec![user])),
        Arc::new(expires.with_timezone("UTC")),
    ];
    let answer = RecordBatch::try_new(token_columns(), columns).map_err(DataFusionError::from)?;
    Ok(StatementOutcome::Answer(answer))
}

fn token_columns() -> SchemaRef {
    let expires = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("token", DataType::Utf8, false),
        Field::new("name", DataType::Utf8, false),
        Field::new("user", DataType::Utf8, false),
        Field::new("expires_at", expires, true),
    ]))
}
