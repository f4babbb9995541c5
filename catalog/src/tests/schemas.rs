use super::access::{gateway, new, rights};
use super::*;
use crate::access::{Grant, GrantObject, PrincipalKind, Privilege};

fn in_staging(name: &str) -> RelationName {
    RelationName::new("staging", name)
}

fn table_named(name: RelationName) -> TableDefinition {
    TableDefinition {
        name,
        ..sharded("", 4)
    }
}

fn view_named(name: RelationName, search_schema: &str) -> NewView {
    NewView {
        name,
        search_schema: search_schema.to_owned(),
        ..new_view("", "SELECT 1", sharded("", 4).schema)
    }
}

async fn create_table(
    catalog: &Catalog,
    workers: &[WorkerId],
    name: RelationName,
    by: &Arc<Rights>,
) -> Result<Arc<Table>> {
    let created = catalog.create_table(table_named(name), workers, IfExists::Fail, by);
    created.await.map(Option::unwrap)
}

async fn grant(catalog: &Catalog, object: GrantObject, privilege: Privilege, to: &str) {
    let grants = vec![Grant::Privileges(object, [privilege].into())];
    let by = gateway();
    let granted = catalog.grant(grants, vec![to.to_owned()], false, &by);
    granted.await.unwrap();
}

fn staging() -> GrantObject {
    GrantObject::Schema("staging".to_owned())
}

/// Returns a catalog with the administrator auk and the users kea and tui.
async fn with_users(directory: &Directory) -> (Catalog, Vec<WorkerId>) {
    let (catalog, workers) = with_workers(directory, 1).await;
    for (name, is_admin) in [("auk", true), ("kea", false), ("tui", false)] {
        let by = gateway();
        let user = new(name, PrincipalKind::User, is_admin);
        catalog.create_principal(user, false, &by).await.unwrap();
    }
    (catalog, workers)
}

#[tokio::test]
async fn equal_names_in_different_schemas_are_different_tables_also_after_a_restart() {
    let directory = Directory::new();
    let (catalog, workers) = with_workers(&directory, 1).await;
    let by = anybody();
    let missing = create_table(&catalog, &workers, in_staging("eggs"), &by).await;
    let missing = missing.unwrap_err();
    assert_eq!(missing.code(), ErrorCode::NotFound);
    assert_eq!(missing.sqlstate(), SqlState::InvalidSchemaName);
    let created = catalog.create_schema("staging", None, false, &by);
    assert!(created.await.unwrap());
    for name in [named("eggs"), in_staging("eggs")] {
        create_table(&catalog, &workers, name, &by).await.unwrap();
    }
    for (name, search_schema) in [
        (in_staging("v"), "staging"),
        (named("v"), "staging"),
        (named("w"), "public"),
    ] {
        let view = view_named(name, search_schema);
        catalog.create_view(view, false, &by).await.unwrap();
    }
    drop(catalog);

    let catalog = open(&directory.0).await.unwrap();
    let state = catalog.state();
    let ids = [named("eggs"), in_staging("eggs")].map(|name| state.table(&name).unwrap().id());
    assert_ne!(ids[0], ids[1]);
    let names: Vec<_> = state.tables().map(|table| table.name().clone()).collect();
    assert_eq!(names, [named("eggs"), in_staging("eggs")]);
    for (name, search_schema) in [
        (in_staging("v"), "staging"),
        (named("v"), "staging"),
        (named("w"), "public"),
    ] {
        let view = state.view(&name).unwrap();
        assert_eq!(view.search_schema(), search_schema);
    }
    let eggs = in_staging("eggs");
    let dropped = catalog.drop_tables([eggs.clone()].into(), false, &by);
    assert_eq!(dropped.await.unwrap()[0].id(), ids[1]);
    let view = in_staging("v");
    let dropped = catalog.drop_views(ViewKind::View, [view.clone()].into(), false, &by);
    assert_eq!(dropped.await.unwrap(), 1);
    drop(catalog);
    let catalog = open(&directory.0).await.unwrap();
    let state = catalog.state();
    assert!(state.table(&named("eggs")).is_some() && state.view(&named("v")).is_some());
    assert!(state.table(&in_staging("eggs")).is_none());
    assert!(state.view(&in_staging("v")).is_none());
    assert!(state.schema("staging").is_some());
}

#[tokio::test]
async fn a_schema_is_created_once_and_some_never() {
    let directory = Directory::new();
    let (catalog, _) = with_workers(&directory, 1).await;
    let by = anybody();
    let create = async |name: &str, if_not_exists| {
        let created = catalog.create_schema(name, None, if_not_exists, &by);
        created.await
    };
    assert!(create("staging", false).await.unwrap());
    for name in ["staging", "public", "system", "information_schema"] {
        let exists = create(name, false).await.unwrap_err();
        assert_eq!(exists.code(), ErrorCode::AlreadyExists);
        assert_eq!(exists.sqlstate(), SqlState::DuplicateSchema);
        assert!(!create(name, true).await.unwrap());
    }
    for name in ["pg_catalog", "", "ke\u{200b}a"] {
        let refused = create(name, true).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::InvalidArgument, "{refused}");
    }
    let drop = async |name: &str, if_exists| {
        let dropped = catalog.drop_schemas(vec![name.to_owned()], if_exists, false, &by);
        dropped.await
    };
    for name in ["public", "system", "information_schema", "pg_catalog"] {
        let refused = drop(name, true).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::InvalidArgument, "{refused}");
    }
    let missing = drop("stagign", false).await.unwrap_err();
    assert_eq!(missing.sqlstate(), SqlState::InvalidSchemaName);
    assert!(missing.message().contains("did you mean \"staging\"?"));
    assert!(drop("stagign", true).await.unwrap().is_none());
    assert!(drop("staging", false).await.unwrap().unwrap().is_empty());
    assert!(catalog.state().schema("staging").is_none());
}

#[tokio::test]
async fn only_cascade_drops_what_is_in_a_schema_also_a_table_that_is_being_created() {
    let directory = Directory::new();
    let (catalog, workers) = with_users(&directory).await;
    let auk = rights(&catalog, "auk");
    let created = catalog.create_schema("staging", None, false, &auk);
    created.await.unwrap();
    create_table(&catalog, &workers, in_staging("eggs"), &auk)
        .await
        .unwrap();
    create_table(&catalog, &workers, named("eggs"), &auk)
        .await
        .unwrap();
    let view = view_named(in_staging("nests"), "staging");
    catalog.create_view(view, false, &auk).await.unwrap();
    let begun = catalog.begin_create(
        table_named(in_staging("chicks")),
        &workers,
        IfExists::Fail,
        &auk,
    );
    let (chicks, write) = begun.await.unwrap();
    let write = write.take_over();
    grant(&catalog, staging(), Privilege::Select, "kea").await;
    let eggs = GrantObject::Table(in_staging("eggs"));
    grant(&catalog, eggs, Privilege::Insert, "kea").await;
    let others = GrantObject::Table(named("eggs"));
    grant(&catalog, others.clone(), Privilege::Insert, "kea").await;

    let drop = async |cascade| {
        let dropped = catalog.drop_schemas(vec!["staging".to_owned()], false, cascade, &auk);
        dropped.await
    };
    let refused = drop(false).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::InvalidArgument);
    let listed = "it has staging.chicks, staging.eggs, staging.nests;";
    assert!(refused.message().contains(listed), "{refused}");
    assert_eq!(drop(true).await.unwrap().unwrap().len(), 2);
    let summary = WriteSummary::new(&chicks, &[]).unwrap();
    let lost = catalog
        .commit_write(write, &chicks, summary)
        .await
        .unwrap_err();
    assert_eq!(lost.code(), ErrorCode::NotFound);
    assert!(catalog.abort_write(write, Some(chicks.id())).await.unwrap());
    let state = catalog.state();
    assert!(state.table(&named("eggs")).is_some());
    assert_eq!(state.tables().count() + state.views().count(), 1);
    let kea = state.access().user("kea").unwrap();
    assert_eq!(kea.grants.keys().collect::<Vec<_>>(), [&others]);

    // A new schema of the same name begins empty, without grants.
    let created = catalog.create_schema("staging", None, false, &auk);
    created.await.unwrap();
    let kea = rights(&catalog, "kea");
    assert!(!catalog.state().may_see_schema("staging", &kea));
}

#[tokio::test]
async fn rights_on_a_schema_extend_to_everything_in_it() {
    let directory = Directory::new();
    let (catalog, workers) = with_users(&directory).await;
    let auk = rights(&catalog, "auk");
    let may_not = |error: Error| error.code() == ErrorCode::PermissionDenied;
    let create_schema = async |name: &str, owner, by: &str| {
        let by = rights(&catalog, by);
        catalog.create_schema(name, owner, false, &by).await
    };
    assert!(may_not(
        create_schema("nests", None, "kea").await.unwrap_err()
    ));
    let cluster = GrantObject::Cluster;
    grant(&catalog, cluster, Privilege::Create, "tui").await;
    create_schema("nests", None, "tui").await.unwrap();
    let for_others = create_schema("others", Some("kea"), "tui").await;
    assert!(may_not(for_others.unwrap_err()));
    create_schema("staging", Some("kea"), "auk").await.unwrap();

    // The owner creates, and what others own in its schema is open to it.
    let kea = rights(&catalog, "kea");
    create_table(&catalog, &workers, in_staging("eggs"), &kea)
        .await
        .unwrap();
    create_table(&catalog, &workers, in_staging("chicks"), &auk)
        .await
        .unwrap();
    let state = catalog.state();
    for privilege in [Privilege::Select, Privilege::Insert] {
        let allowed = state.check_privilege(privilege, &in_staging("chicks"), &kea);
        allowed.unwrap();
    }
    assert!(may_not(
        state.check_owner(&in_staging("chicks"), &kea).unwrap_err()
    ));

    // To others, the schema does not exist, whatever they may do elsewhere.
    let tui = rights(&catalog, "tui");
    assert!(!state.may_see_schema("staging", &tui));
    let hidden = state.no_such_table(&in_staging("eggs"), &tui);
    assert_eq!(hidden.sqlstate(), SqlState::InvalidSchemaName);
    let refused = create_table(&catalog, &workers, in_staging("own"), &tui).await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::NotFound);

    // A grant on the schema covers what is created later.
    grant(&catalog, staging(), Privilege::Select, "tui").await;
    create_table(&catalog, &workers, in_staging("later"), &kea)
        .await
        .unwrap();
    let (state, tui) = (catalog.state(), rights(&catalog, "tui"));
    let later = in_staging("later");
    state
        .check_privilege(Privilege::Select, &later, &tui)
        .unwrap();
    let insert = state.check_privilege(Privilege::Insert, &later, &tui);
    assert!(may_not(insert.unwrap_err()));
    let refused = create_table(&catalog, &workers, in_staging("own"), &tui).await;
    assert!(may_not(refused.unwrap_err()));
    grant(&catalog, staging(), Privilege::Create, "tui").await;
    let tui = rights(&catalog, "tui");
    create_table(&catalog, &workers, in_staging("own"), &tui)
        .await
        .unwrap();
    let dropped = catalog.drop_schemas(vec!["staging".to_owned()], false, true, &tui);
    assert!(may_not(dropped.await.unwrap_err()));

    // The owner grants, and cannot be dropped before the schema has another owner.
    let revoked = vec![Grant::Privileges(staging(), [Privilege::Create].into())];
    let granted = catalog.grant(revoked, vec!["tui".to_owned()], true, &kea);
    granted.await.unwrap();
    let dropped = catalog.drop_principal(PrincipalKind::User, "kea", false, &auk);
    let owns = dropped.await.unwrap_err();
    assert!(owns.message().contains("the schema staging"), "{owns}");
    let given = catalog.set_schema_owner("staging", "tui", &kea).await;
    assert!(may_not(given.unwrap_err()));
    let given = catalog.set_schema_owner("staging", "tui", &auk);
    given.await.unwrap();
    let tui = rights(&catalog, "tui");
    let dropped = catalog.drop_schemas(vec!["staging".to_owned()], false, true, &tui);
    assert_eq!(dropped.await.unwrap().unwrap().len(), 4);
}
