//! Who calls: the credentials of the `authorization` header, and the hook that checks them.

use tonic::metadata::MetadataMap;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::base64;

/// The header of credentials, and of the token that replaces them.
pub(super) const AUTHORIZATION: &str = "authorization";

/// What a client shows.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    /// Nothing.
    None,
    /// A name and a password.
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// A token: one of a session that this gateway opened, or an API key.
    Bearer(String),
}

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Principal {
    /// The user's name; `anonymous` as long as no users are configured.
    pub(super) name: String,
}

/// Checks credentials. No users are configured, so any are right; only what is no credential at all is refused.
///
/// # Errors
/// `UNAUTHENTICATED` if they are wrong.
pub(super) fn authenticate(credentials: &Credentials) -> Result<Principal> {
    let name = match credentials {
        Credentials::Basic { user, .. } if !user.is_empty() => user.as_str(),
        Credentials::Basic { .. } | Credentials::Bearer(_) | Credentials::None => "anonymous",
    };
    Ok(Principal {
        name: name.to_owned(),
    })
}

/// The credentials of a call.
///
/// # Errors
/// `UNAUTHENTICATED` for a header that cannot be read.
pub(super) fn credentials(metadata: &MetadataMap) -> Result<Credentials> {
    let Some(header) = metadata.get(AUTHORIZATION) else {
        return Ok(Credentials::None);
    };
    header
        .to_str()
        .ok()
        .and_then(parse)
        .ok_or_else(|| {
            Error::new(
                ErrorCode::Unauthenticated,
                "the authorization header cannot be read; send \"Basic\" and base64 of user:password, or \"Bearer\" and a token",
            )
        })
}

fn parse(header: &str) -> Option<Credentials> {
    let (scheme, rest) = header.trim().split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return (!rest.is_empty()).then(|| Credentials::Bearer(rest.to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(base64::decode(rest)?).ok()?;
    let (user, password) = pair.split_once(':')?;
    Some(Credentials::Basic {
        user: user.to_owned(),
        password: password.to_owned(),
    })
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Passwords and tokens never reach a log.
        f.write_str(match self {
            Self::None => "Credentials::None",
            Self::Basic { .. } => "Credentials::Basic(…)",
            Self::Bearer(_) => "Credentials::Bearer(…)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(user: &str, password: &str) -> Option<Credentials> {
        Some(Credentials::Basic {
            user: user.to_owned(),
            password: password.to_owned(),
        })
    }

    #[test]
    fn basic_is_read_with_and_without_padding() {
        assert_eq!(parse("Basic dXNlcjpwYXNzdw=="), basic("user", "passw"));
        assert_eq!(parse("basic dXNlcjpwYXNzdw"), basic("user", "passw"));
        assert_eq!(parse("Basic dTphOmI="), basic("u", "a:b"));
    }

    #[test]
    fn bearer_is_read_whatever_the_token_looks_like() {
        assert_eq!(
            parse("Bearer abc.def"),
            Some(Credentials::Bearer("abc.def".to_owned()))
        );
    }

    #[test]
    fn what_is_no_credential_is_refused() {
        for header in [
            "",
            "Bearer ",
            "Basic !!!!",
            "Basic dXNlcg==",
            "Negotiate abc",
            "token",
        ] {
            assert_eq!(parse(header), None, "{header}");
        }
        let mut metadata = MetadataMap::new();
        assert_eq!(credentials(&metadata).unwrap(), Credentials::None);
        metadata.insert(AUTHORIZATION, "Digest x".parse().unwrap());
        assert_eq!(
            credentials(&metadata).unwrap_err().code(),
            ErrorCode::Unauthenticated
        );
    }
}
