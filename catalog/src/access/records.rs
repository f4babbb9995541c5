use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::super::records::{Record, SEVENTH_FORMAT, THIRD_FORMAT};
use super::limits::UserLimits;
use super::rights::{GrantObject, Privilege};

/// A user or a role. Users and roles share one set of names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrincipalRecord {
    /// The name of the user or role.
    pub name: String,
    /// Says whether this is a user, who can log in, or a role.
    pub kind: PrincipalKind,
    /// The hash that the user's password is checked against: a PHC string of argon2id. It is `None`
    /// for a role, and for a user who logs in with tokens only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// A number that grows whenever the user's password changes. Sessions that began with an older
    /// number have ended.
    pub generation: u64,
    /// Says whether the user or role has all rights.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
    /// The roles that were granted to the user or role directly.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub member_of: BTreeSet<String>,
    /// The privileges that were granted to the user or role directly.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "grants")]
    pub grants: BTreeMap<GrantObject, BTreeSet<Privilege>>,
    /// The limits of what the user may use at once.
    #[serde(default, skip_serializing_if = "UserLimits::is_none")]
    pub limits: UserLimits,
    /// Time of creation, in milliseconds since 1970.
    pub created_at_ms: i64,
}

/// The kind of a [`PrincipalRecord`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    /// A user, who can log in.
    User,
    /// A role, which cannot log in.
    Role,
}

impl PrincipalKind {
    /// Returns the name of the kind in messages and statements.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Role => "role",
        }
    }
}

/// A token with which a user logs in instead of a password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// The name of the token.
    pub name: String,
    /// The user who logs in with the token.
    pub user: String,
    /// The BLAKE3 hash of the token, in hexadecimal. A token is 256 random bits that nobody can
    /// guess, so a slow hash would add no protection.
    pub hash: String,
    /// Time of creation, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// Time at which the token expires, in milliseconds since 1970. `None` means that it never
    /// expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<i64>,
}

impl Record for PrincipalRecord {
    const PREFIX: &'static str = "principal/";

    fn name(&self) -> String {
        self.name.clone()
    }

    fn format(&self) -> u32 {
        // An older release would take a grant on a table `s.t` for one on a table `t`.
        let needs_schemas = |object: &GrantObject| match object {
            GrantObject::Cluster | GrantObject::AllTables => false,
            GrantObject::Schema(_) => true,
            GrantObject::Table(name) => !name.is_in_public(),
        };
        if self.grants.keys().any(needs_schemas) {
            SEVENTH_FORMAT
        } else {
            THIRD_FORMAT
        }
    }
}

impl Record for TokenRecord {
    const PREFIX: &'static str = "token/";

    fn name(&self) -> String {
        self.name.clone()
    }

    fn format(&self) -> u32 {
        THIRD_FORMAT
    }
}

/// Serializes grants as a list, because the keys of a JSON object can only be text.
mod grants {
    use serde::{Deserializer, Serializer};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Grant {
        on: GrantObject,
        privileges: BTreeSet<Privilege>,
    }

    pub(super) fn serialize<S: Serializer>(
        grants: &BTreeMap<GrantObject, BTreeSet<Privilege>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(grants.iter().map(|(on, privileges)| Grant {
            on: on.clone(),
            privileges: privileges.clone(),
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<GrantObject, BTreeSet<Privilege>>, D::Error> {
        let grants = Vec::<Grant>::deserialize(deserializer)?;
        Ok(grants
            .into_iter()
            .map(|grant| (grant.on, grant.privileges))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::records::{decode, encode};
    use super::super::super::relation_name::RelationName;
    use super::*;

    #[test]
    fn a_user_has_the_same_text_for_ever() {
        let mut user = PrincipalRecord {
            name: "kea".to_owned(),
            kind: PrincipalKind::User,
            password: Some("$argon2id$…".to_owned()),
            generation: 3,
            admin: true,
            member_of: ["analysts".to_owned()].into(),
            grants: [
                (GrantObject::Cluster, [Privilege::Create].into()),
                (GrantObject::AllTables, [Privilege::Select].into()),
                (
                    GrantObject::Table(RelationName::in_public("eggs")),
                    [Privilege::Insert, Privilege::Select].into(),
                ),
            ]
            .into(),
            limits: UserLimits::default(),
            created_at_ms: 7,
        };
        let text = r#"{"format":3,"name":"kea","kind":"user","password":"$argon2id$…","generation":3,"admin":true,"member_of":["analysts"],"grants":[{"on":"cluster","privileges":["create"]},{"on":"all_tables","privileges":["select"]},{"on":{"table":"eggs"},"privileges":["select","insert"]}],"created_at_ms":7}"#;
        assert_eq!(String::from_utf8(encode(&user).unwrap()).unwrap(), text);
        let read: PrincipalRecord = decode("principal/kea", text.as_bytes()).unwrap();
        assert_eq!(read, user);

        user.grants = [
            (
                GrantObject::Table(RelationName::new("staging", "eggs")),
                [Privilege::Select].into(),
            ),
            (
                GrantObject::Schema("staging".to_owned()),
                [Privilege::Create].into(),
            ),
        ]
        .into();
        let text = r#"{"format":7,"name":"kea","kind":"user","password":"$argon2id$…","generation":3,"admin":true,"member_of":["analysts"],"grants":[{"on":{"table":{"schema":"staging","name":"eggs"}},"privileges":["select"]},{"on":{"schema":"staging"},"privileges":["create"]}],"created_at_ms":7}"#;
        assert_eq!(String::from_utf8(encode(&user).unwrap()).unwrap(), text);
        let read: PrincipalRecord = decode("principal/kea", text.as_bytes()).unwrap();
        assert_eq!(read, user);
    }
}
