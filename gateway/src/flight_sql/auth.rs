use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use tonic::metadata::MetadataMap;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::login::Credentials;

/// Base64 with or without padding. Go's drivers leave the padding out, and all others write it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Name of the header that carries credentials, and the token that replaces them.
pub(super) const AUTHORIZATION: &str = "authorization";

/// Returns the credentials of a call.
///
/// # Errors
/// `UNAUTHENTICATED` if the header cannot be read.
pub(super) fn credentials(metadata: &MetadataMap) -> Result<Credentials> {
    let header = metadata.get(AUTHORIZATION);
    // A header that is not text counts as an empty one, which cannot be read either.
    parse_authorization(header.map(|header| header.to_str().unwrap_or_default()))
}

/// Returns the credentials in the value of an `authorization` header.
///
/// # Errors
/// The errors of [`credentials`].
pub(super) fn parse_authorization(header: Option<&str>) -> Result<Credentials> {
    let Some(header) = header else {
        return Ok(Credentials::None);
    };
    parse(header).ok_or_else(|| {
        Error::new(
            ErrorCode::Unauthenticated,
            "the authorization header cannot be read; send \"Basic\" and base64 of user:password, or \"Bearer\" and a token",
        )
    })
}

/// Returns the value of the `authorization` header for a bearer token.
pub(super) fn bearer_header(token: &str) -> String {
    format!("Bearer {token}")
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
    let pair = String::from_utf8(BASE64.decode(rest).ok()?).ok()?;
    let (user, password) = pair.split_once(':')?;
    Some(Credentials::Basic {
        user: user.to_owned(),
        password: password.to_owned(),
    })
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
