use volary_flight_proto::ids::SessionId;

use super::access::{gateway, new, rights};
use super::*;
use crate::access::PrincipalKind;

fn session(number: u128) -> SessionId {
    SessionId(uuid::Uuid::from_u128(number))
}

fn temporary(number: u128, name: &str) -> TableDefinition {
    TableDefinition {
        name: RelationName::temporary(session(number), name),
        ..sharded("", 4)
    }
}

async fn create(
    catalog: &Catalog,
    definition: TableDefinition,
    by: &Arc<Rights>,
) -> Result<Arc<Table>> {
    let workers: Vec<_> = catalog.state().workers().map(|it| it.id).collect();
    let created = catalog.create_table(definition, &workers, IfExists::Fail, by);
    created.await.map(Option::unwrap)
}

#[tokio::test]
async fn temporary_tables_are_listed_for_their_session_alone_and_end_with_it() {
    let directory = Directory::new();
    let (catalog, _) = with_workers(&directory, 1).await;
    let by = anybody();
    create(&catalog, sharded("eggs", 4), &by).await.unwrap();
    for number in [1, 2] {
        create(&catalog, temporary(number, "eggs"), &by)
            .await
            .unwrap();
    }
    let view = NewView {
        name: RelationName::temporary(session(1), "v"),
        ..new_view("", "SELECT 1", sharded("", 4).schema)
    };
    catalog.create_view(view, false, &by).await.unwrap();
    let state = catalog.state();
    assert_eq!(state.tables().count(), 1);
    assert_eq!(state.views().count(), 0);
    assert_eq!(state.temporary_tables(session(1)).count(), 1);
    assert_eq!(state.temporary_views(session(1)).count(), 1);
    assert!(state.has_temporary(session(2)) && !state.has_temporary(session(3)));
    assert_ne!(
        state.temporary_names(session(1)),
        state.temporary_names(session(2))
    );
    assert_eq!(state.temporary_names(session(3)), None);
    assert_eq!(state.retained_tables().count(), 3);
    let dropped = catalog.drop_temporary([session(1)].into()).await.unwrap();
    assert_eq!(dropped.len(), 1);
    let state = catalog.state();
    assert!(!state.has_temporary(session(1)) && state.has_temporary(session(2)));
    assert!(state.table(&named("eggs")).is_some());
}

#[tokio::test]
async fn a_start_drops_what_the_last_gateway_left() {
    let directory = Directory::new();
    let (catalog, _) = with_workers(&directory, 1).await;
    create(&catalog, sharded("eggs", 4), &anybody())
        .await
        .unwrap();
    create(&catalog, temporary(1, "eggs"), &anybody())
        .await
        .unwrap();
    drop(catalog);
    let catalog = open(&directory.0).await.unwrap();
    let state = catalog.state();
    assert!(state.sessions_with_temporary().is_empty());
    assert_eq!(state.retained_tables().count(), 1);
}

#[tokio::test]
async fn everybody_may_create_temporary_tables_which_are_dropped_with_their_user() {
    let directory = Directory::new();
    let (catalog, _) = with_workers(&directory, 1).await;
    for principal in [
        new("auk", PrincipalKind::User, true),
        new("kea", PrincipalKind::User, false),
    ] {
        catalog
            .create_principal(principal, false, &gateway())
            .await
            .unwrap();
    }
    let kea = rights(&catalog, "kea");
    let refused = create(&catalog, sharded("eggs", 4), &kea)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), ErrorCode::PermissionDenied);
    create(&catalog, temporary(1, "eggs"), &kea).await.unwrap();
    let auk = rights(&catalog, "auk");
    catalog
        .drop_principal(PrincipalKind::User, "kea", false, &auk)
        .await
        .unwrap();
    assert!(catalog.state().sessions_with_temporary().is_empty());
}

#[tokio::test]
async fn a_user_has_a_quarter_of_all_temporary_tables() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    let catalog = catalog.with_temporary_limits(TemporaryLimits {
        tables: 8,
        bytes: 4_000,
    });
    let by = anybody();
    for name in ["a", "b"] {
        create(&catalog, temporary(1, name), &by).await.unwrap();
    }
    let error = create(&catalog, temporary(1, "c"), &by).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ResourceExhausted);
    assert!(
        error
            .message()
            .contains("gateway.temporary_tables.max_tables"),
        "{error}"
    );
    let replacing = catalog.create_table(temporary(1, "b"), &workers, IfExists::Replace, &by);
    replacing.await.unwrap();
    for number in 2..=4 {
        for name in ["a", "b"] {
            create(&catalog, temporary(number, name), &by)
                .await
                .unwrap();
        }
    }
    create(&catalog, temporary(5, "a"), &by).await.unwrap_err();
    create(&catalog, sharded("eggs", 4), &by).await.unwrap();

    // Each write adds 1000 bytes.
    let write = async |number| {
        let name = RelationName::temporary(session(number), "a");
        let table = catalog.state().table(&name).unwrap().clone();
        let write = catalog.begin_write(&table).await.unwrap().take_over();
        let summary = WriteSummary::new(&table, &[(workers[0], written(0, 3))]).unwrap();
        catalog.commit_write(write, &table, summary).await
    };
    write(1).await.unwrap();
    let error = write(1).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ResourceExhausted);
    assert!(
        error
            .message()
            .contains("gateway.temporary_tables.max_size"),
        "{error}"
    );
    write(2).await.unwrap();
    for _ in 0..5 {
        load(&catalog, "eggs", 3).await;
    }
    let none = catalog.with_temporary_limits(TemporaryLimits {
        tables: 0,
        bytes: 0,
    });
    let error = create(&none, temporary(9, "a"), &by).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
}
