//! Administrators see all tokens, and other users see their own.

use std::sync::Arc;

use volary_catalog::access::TokenRecord;
use volary_flight_proto::Result;

use super::column::{Column, timestamp_from_ms};
use super::sources::SystemTableSources;
use super::table::SystemTable;

pub(super) struct Tokens;

impl SystemTable for Tokens {
    type Row = Arc<TokenRecord>;

    const NAME: &'static str = "tokens";

    const COLUMNS: &'static [Column<Arc<TokenRecord>>] = &[
        Column::text("name", |token| token.name.clone()),
        Column::text("user_name", |token| token.user.clone()),
        Column::time("created", |token| timestamp_from_ms(token.created_at_ms)),
        Column::optional_time("expires", |token| {
            token.expires_at_ms.map(timestamp_from_ms)
        }),
    ];

    async fn rows(sources: &SystemTableSources) -> Result<Vec<Arc<TokenRecord>>> {
        let tokens = sources.catalog.access().tokens();
        let shown = tokens.filter(|token| sources.rights.may_act_for(&token.user));
        Ok(shown.cloned().collect())
    }
}
