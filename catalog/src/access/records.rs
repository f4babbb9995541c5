//! What the catalog keeps of users, roles and tokens.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::super::records::{Record, THIRD_FORMAT};
use super::limits::UserLimits;
use super::rights::{Object, Privilege};

/// A user or a role: they share their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrincipalRecord {
    /// Its name.
    pub name: String,
    /// Whether it can log in.
    pub kind: PrincipalKind,
    /// What its password is checked against: a PHC string of argon2id. None for a role, and for a user who logs in by tokens only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Grows whenever what it logs in with changes: sessions that began before are over.
    pub generation: u64,
    /// Whether it may do everything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
    /// The roles that it was granted.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub member_of: BTreeSet<String>,
    /// What it was granted itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "grants")]
    pub grants: BTreeMap<Object, BTreeSet<Privilege>>,
    /// What it may take at once.
    #[serde(default, skip_serializing_if = "UserLimits::is_none")]
    pub limits: UserLimits,
    /// When it was created, in milliseconds since 1970.
    pub created_at_ms: i64,
}

/// Whether it can log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    /// A user.
    User,
    /// A role.
    Role,
}

impl PrincipalKind {
    /// As statements name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Role => "role",
        }
    }
}

/// A token that somebody logs in with instead of a password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Its name.
    pub name: String,
    /// Who logs in with it.
    pub user: String,
    /// The BLAKE3 hash of the token, in hexadecimal: nobody guesses 256 bits, so that a slow hash would add nothing.
    pub hash: String,
    /// When it was created, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// Until when it is valid, in milliseconds since 1970; none for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<i64>,
}

impl Record for PrincipalRecord {
    const PREFIX: &'static str = "principal/";

    fn name(&self) -> String {
        self.name.clone()
    }

    fn format(&self) -> u32 {
        THIRD_FORMAT
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

/// JSON's keys are text only: grants are a list.
mod grants {
    use serde::{Deserializer, Serializer};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Grant {
        on: Object,
        privileges: BTreeSet<Privilege>,
    }

    pub(super) fn serialize<S: Serializer>(
        grants: &BTreeMap<Object, BTreeSet<Privilege>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(grants.iter().map(|(on, privileges)| Grant {
            on: on.clone(),
            privileges: privileges.clone(),
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<Object, BTreeSet<Privilege>>, D::Error> {
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
    use super::*;

    #[test]
    fn a_user_has_the_same_text_for_ever() {
        let user = PrincipalRecord {
            name: "kea".to_owned(),
            kind: PrincipalKind::User,
            password: Some("$argon2id$…".to_owned()),
            generation: 3,
            admin: true,
            member_of: ["analysts".to_owned()].into(),
            grants: [
                (Object::Cluster, [Privilege::Create].into()),
                (Object::AllTables, [Privilege::Select].into()),
                (
                    Object::Table("eggs".to_owned()),
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
    }
}
