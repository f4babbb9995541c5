use super::*;
use crate::access::{
    Grant, GrantObject, LimitChange, LimitChanges, NewPrincipal, PrincipalChange, PrincipalKind,
    Privilege, TokenRecord,
};

pub(super) fn new(name: &str, kind: PrincipalKind, admin: bool) -> NewPrincipal {
    NewPrincipal {
        name: name.to_owned(),
        kind,
        password: (kind == PrincipalKind::User).then(|| "hash".to_owned()),
        admin,
        limits: LimitChanges::default(),
    }
}

pub(super) fn gateway() -> Arc<Rights> {
    Arc::new(Rights::of_gateway())
}

fn read(table: &str) -> Grant {
    Grant::Privileges(GrantObject::Table(named(table)), [Privilege::Select].into())
}

async fn with_users(directory: &Directory) -> Catalog {
    let (catalog, workers) = with_workers(directory, 1).await;
    catalog
        .create_table(sharded("eggs", 4), &workers, IfExists::Fail, &anybody())
        .await
        .unwrap();
    for (name, kind, admin) in [
        ("auk", PrincipalKind::User, true),
        ("kea", PrincipalKind::User, false),
        ("keas", PrincipalKind::Role, false),
        ("birds", PrincipalKind::Role, false),
    ] {
        let created = catalog
            .create_principal(new(name, kind, admin), false, &gateway())
            .await;
        assert!(created.unwrap());
    }
    catalog
}

pub(super) fn rights(catalog: &Catalog, name: &str) -> Arc<Rights> {
    Arc::clone(catalog.state().access().rights(name).unwrap())
}

fn reads(catalog: &Catalog, name: &str) -> bool {
    let state = catalog.state();
    let owner = state.owner_of(&named("eggs")).unwrap();
    let rights = state.access().rights(name).unwrap();
    rights
        .check_privilege(Privilege::Select, &named("eggs"), owner)
        .is_ok()
}

#[tokio::test]
async fn what_was_granted_is_there_after_a_restart() {
    let directory = Directory::new();
    let catalog = with_users(&directory).await;
    let auk = rights(&catalog, "auk");
    let grant = async |grants, to: &[&str], revoke| {
        let to = to.iter().map(|&name| name.to_owned()).collect();
        catalog.grant(grants, to, revoke, &auk).await
    };
    grant(vec![read("eggs")], &["birds"], false).await.unwrap();
    grant(vec![Grant::Role("birds".to_owned())], &["keas"], false)
        .await
        .unwrap();
    assert!(!reads(&catalog, "kea"));
    grant(vec![Grant::Role("keas".to_owned())], &["kea"], false)
        .await
        .unwrap();
    assert!(reads(&catalog, "kea"));
    let error = grant(vec![Grant::Role("keas".to_owned())], &["birds"], false).await;
    assert!(error.unwrap_err().message().contains("has the role"));
    for (grants, to) in [
        (vec![read("nests")], "kea"),
        (vec![read("eggs")], "nobody"),
        (vec![Grant::Role("kea".to_owned())], "keas"),
    ] {
        grant(grants, &[to], false).await.unwrap_err();
    }
    let token = TokenRecord {
        name: "nightly".to_owned(),
        user: "kea".to_owned(),
        hash: "hash".to_owned(),
        created_at_ms: 1,
        expires_at_ms: None,
    };
    catalog
        .create_token(token.clone(), &gateway())
        .await
        .unwrap();
    let key = catalog.state().token_key().unwrap();
    drop(catalog);

    let catalog = open(&directory.0).await.unwrap();
    assert!(reads(&catalog, "kea"));
    let state = catalog.state();
    assert_eq!(state.token_key().unwrap().as_bytes(), key.as_bytes());
    assert_eq!(
        state.access().token_by_hash("hash").unwrap().as_ref(),
        &token
    );
    catalog
        .drop_principal(PrincipalKind::Role, "birds", false, &gateway())
        .await
        .unwrap();
    assert!(!reads(&catalog, "kea"));
    catalog
        .drop_principal(PrincipalKind::User, "kea", false, &gateway())
        .await
        .unwrap();
    assert!(catalog.state().access().token_by_hash("hash").is_none());
    drop(catalog);
    let catalog = open(&directory.0).await.unwrap();
    let names: Vec<_> = catalog
        .state()
        .access()
        .principals()
        .map(|principal| principal.name.clone())
        .collect();
    assert_eq!(names, ["auk", "keas"]);
}

#[tokio::test]
async fn somebody_can_always_administer() {
    let directory = Directory::new();
    let (catalog, _) = with_workers(&directory, 1).await;
    let nobody_left = |error: Error| error.message().contains("would have no administrator");
    let first = new("kea", PrincipalKind::User, false);
    let refused = catalog.create_principal(first, false, &gateway()).await;
    assert!(nobody_left(refused.unwrap_err()));
    assert!(!catalog.state().access().has_users());
    let without_password = NewPrincipal {
        password: None,
        ..new("kea", PrincipalKind::User, true)
    };
    let refused = catalog
        .create_principal(without_password, false, &gateway())
        .await;
    assert!(nobody_left(refused.unwrap_err()));
    let kea = new("kea", PrincipalKind::User, true);
    catalog
        .create_principal(kea.clone(), false, &gateway())
        .await
        .unwrap();
    assert!(
        !catalog
            .create_principal(kea, true, &gateway())
            .await
            .unwrap()
    );
    let demoted = PrincipalChange {
        name: "kea".to_owned(),
        kind: PrincipalKind::User,
        password: None,
        admin: Some(false),
        limits: LimitChanges::default(),
    };
    let refused = catalog.change_principal(demoted.clone(), &gateway()).await;
    assert!(nobody_left(refused.unwrap_err()));
    let refused = catalog
        .drop_principal(PrincipalKind::User, "kea", false, &gateway())
        .await;
    assert!(nobody_left(refused.unwrap_err()));
    // A user can also administer through a role that is an administrator.
    let [admins, auk] = [
        new("admins", PrincipalKind::Role, true),
        new("auk", PrincipalKind::User, false),
    ];
    for principal in [admins, auk] {
        catalog
            .create_principal(principal, false, &gateway())
            .await
            .unwrap();
    }
    let by = rights(&catalog, "kea");
    let (role, to) = (
        vec![Grant::Role("admins".to_owned())],
        vec!["auk".to_owned()],
    );
    catalog
        .grant(role.clone(), to.clone(), false, &by)
        .await
        .unwrap();
    catalog.change_principal(demoted, &gateway()).await.unwrap();
    let refused = catalog.grant(role, to, true, &gateway()).await;
    assert!(nobody_left(refused.unwrap_err()));
}

#[tokio::test]
async fn a_password_that_changes_is_another_generation_also_of_a_user_who_comes_again() {
    let directory = Directory::new();
    let catalog = with_users(&directory).await;
    let generation = || catalog.state().access().user("kea").unwrap().generation;
    let mut before = generation();
    let change = |password: Option<&str>, admin| PrincipalChange {
        name: "kea".to_owned(),
        kind: PrincipalKind::User,
        password: password.map(str::to_owned),
        admin,
        limits: LimitChanges::default(),
    };
    catalog
        .change_principal(change(None, Some(true)), &gateway())
        .await
        .unwrap();
    let limited = PrincipalChange {
        limits: LimitChanges {
            max_queries: LimitChange::Set(2),
            ..LimitChanges::default()
        },
        ..change(None, None)
    };
    let kea = rights(&catalog, "kea");
    catalog.change_principal(limited, &kea).await.unwrap();
    assert_eq!(rights(&catalog, "kea").limits().max_queries, Some(2));
    assert_eq!(generation(), before);
    catalog
        .change_principal(change(Some("other"), None), &gateway())
        .await
        .unwrap();
    assert!(generation() > before);
    before = generation();
    let kea = new("kea", PrincipalKind::User, false);
    catalog
        .drop_principal(PrincipalKind::User, "kea", false, &gateway())
        .await
        .unwrap();
    catalog
        .create_principal(kea, false, &gateway())
        .await
        .unwrap();
    assert!(generation() > before);
}

#[tokio::test]
async fn owners_stay_owners_and_what_is_dropped_is_granted_to_nobody() {
    let directory = Directory::new();
    let catalog = with_users(&directory).await;
    let live = [catalog.state().workers().next().unwrap().id];
    let [auk, kea] = ["auk", "kea"].map(|name| rights(&catalog, name));
    let create = async |by: &Arc<Rights>, if_exists| {
        let created = catalog.create_table(sharded("own", 4), &live, if_exists, by);
        created
            .await
            .map(|table| table.map(|table| table.owner().map(str::to_owned)))
    };
    assert_eq!(
        create(&kea, IfExists::Fail).await.unwrap_err().code(),
        ErrorCode::PermissionDenied
    );
    let may_create = Grant::Privileges(GrantObject::Cluster, [Privilege::Create].into());
    catalog
        .grant(vec![may_create], vec!["kea".to_owned()], false, &auk)
        .await
        .unwrap();
    let kea = rights(&catalog, "kea");
    let owned = Some(Some("kea".to_owned()));
    assert_eq!(create(&kea, IfExists::Fail).await.unwrap(), owned);
    assert_eq!(create(&auk, IfExists::Replace).await.unwrap(), owned);
    catalog
        .grant(vec![read("own")], vec!["keas".to_owned()], false, &kea)
        .await
        .unwrap();
    let error = catalog
        .set_owner(&named("own"), "auk", &kea)
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::PermissionDenied);
    catalog.set_owner(&named("own"), "auk", &auk).await.unwrap();
    // Users do not learn about a table that they may not see, except that its name is taken.
    let hidden = catalog
        .drop_tables([named("own")].into(), false, &kea)
        .await
        .unwrap_err();
    assert_eq!(hidden.code(), ErrorCode::NotFound);
    assert!(
        catalog
            .drop_tables([named("own")].into(), true, &kea)
            .await
            .unwrap()
            .is_empty()
    );
    let taken = create(&kea, IfExists::Replace).await.unwrap_err();
    assert_eq!(taken.code(), ErrorCode::AlreadyExists);
    let to_kea = vec!["kea".to_owned()];
    catalog
        .grant(vec![read("own")], to_kea, false, &auk)
        .await
        .unwrap();
    for refused in [
        catalog
            .set_owner(&named("own"), "kea", &kea)
            .await
            .unwrap_err(),
        catalog
            .drop_tables([named("own")].into(), false, &kea)
            .await
            .unwrap_err(),
        create(&kea, IfExists::Replace).await.unwrap_err(),
        catalog
            .grant(vec![read("own")], vec!["kea".to_owned()], false, &kea)
            .await
            .unwrap_err(),
    ] {
        assert_eq!(refused.code(), ErrorCode::PermissionDenied, "{refused}");
    }
    let owns = catalog
        .drop_principal(PrincipalKind::User, "auk", false, &gateway())
        .await;
    assert!(owns.unwrap_err().message().contains("owns own"));
    catalog
        .drop_tables([named("own")].into(), false, &auk)
        .await
        .unwrap();
    let state = catalog.state();
    let mut principals = state.access().principals();
    assert!(principals.all(|it| { !it.grants.contains_key(&GrantObject::Table(named("own"))) }));
}

#[tokio::test]
async fn rights_of_before_a_change_are_worth_nothing_after_it() {
    let directory = Directory::new();
    let (catalog, _) = with_workers(&directory, 1).await;
    let refused = |error: Error| assert_eq!(error.code(), ErrorCode::Unauthenticated);
    // This call began when there were no users.
    let auk = new("auk", PrincipalKind::User, true);
    catalog
        .create_principal(auk, false, &anybody())
        .await
        .unwrap();
    let kea = || new("kea", PrincipalKind::User, false);
    refused(
        catalog
            .create_principal(kea(), false, &anybody())
            .await
            .unwrap_err(),
    );
    let auk = rights(&catalog, "auk");
    catalog.create_principal(kea(), false, &auk).await.unwrap();
    let before = rights(&catalog, "kea");
    let may_create = Grant::Privileges(GrantObject::Cluster, [Privilege::Create].into());
    let to = vec!["kea".to_owned()];
    catalog
        .grant(vec![may_create], to, false, &auk)
        .await
        .unwrap();
    // Rights that were granted after the call began count, and revocations would, too.
    let definition = || sharded("own", 4);
    let live = [catalog.state().workers().next().unwrap().id];
    let created = catalog.create_table(definition(), &live, IfExists::Fail, &before);
    created.await.unwrap();
    catalog
        .drop_tables([named("own")].into(), false, &before)
        .await
        .unwrap();
    catalog
        .drop_principal(PrincipalKind::User, "kea", false, &auk)
        .await
        .unwrap();
    for _ in 0..2 {
        let created = catalog.create_table(definition(), &live, IfExists::Fail, &before);
        refused(created.await.unwrap_err());
        // A new user of the same name is another user.
        let _ = catalog.create_principal(kea(), true, &auk).await;
    }
}

#[tokio::test]
async fn a_role_is_granted_to_everybody_whatever_everybody_has() {
    let directory = Directory::new();
    let (catalog, by) = (with_users(&directory).await, gateway());
    for (grant, allowed) in [
        (read("eggs"), false),
        (Grant::Role("keas".to_owned()), true),
    ] {
        let granted = catalog.grant(vec![grant], vec!["public".to_owned()], false, &by);
        granted.await.unwrap();
        let has_role = catalog.state().access().roles_of("kea").contains("keas");
        assert_eq!(has_role, allowed);
    }
    let error = catalog.grant(
        vec![Grant::Role("public".to_owned())],
        vec!["keas".to_owned()],
        false,
        &by,
    );
    assert!(error.await.unwrap_err().message().contains("has the role"));
}
