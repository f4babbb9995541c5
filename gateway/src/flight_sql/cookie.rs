//! The cookie that names a session: JDBC and ODBC keep cookies, ADBC if it is told to.

use tonic::metadata::MetadataMap;

use super::sessions::SessionToken;

const NAME: &str = "volary-session";

/// The session that the call's cookies name.
pub(super) fn session_token(metadata: &MetadataMap) -> Option<SessionToken> {
    metadata
        .get_all("cookie")
        .iter()
        .filter_map(|header| header.to_str().ok())
        .flat_map(|header| header.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .filter(|(name, _)| *name == NAME)
        .find_map(|(_, value)| SessionToken::parse(value.trim_matches('"')))
}

/// What tells a client to show the token from now on. There are no attributes: a client that has no path to compare, as in
/// Flight, sends a cookie with every call, and Java quotes the values of cookies that have attributes of newer versions.
pub(super) fn of_session(token: &SessionToken) -> String {
    format!("{NAME}={}", token.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(headers: &[&str]) -> Option<SessionToken> {
        let mut metadata = MetadataMap::new();
        for header in headers {
            metadata.append("cookie", header.parse().unwrap());
        }
        session_token(&metadata)
    }

    #[test]
    fn the_session_is_found_among_the_cookies_of_a_load_balancer() {
        let token = SessionToken::new();
        let cookie = of_session(&token);
        let quoted = format!("{NAME}=\"{}\"", token.as_str());
        for headers in [
            vec![cookie.clone()],
            vec![format!("lb=7; {cookie}")],
            vec![format!("{cookie};lb=7")],
            vec!["lb=7".to_owned(), quoted],
            vec![format!("{NAME}=old;{cookie}")],
        ] {
            let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
            assert_eq!(shown(&headers), Some(token.clone()), "{headers:?}");
        }
    }

    #[test]
    fn cookies_of_others_name_no_session() {
        for header in ["", "lb=7", "volary-session", "volary-session=7", ";;="] {
            assert_eq!(shown(&[header]), None, "{header}");
        }
        assert_eq!(shown(&[]), None);
    }
}
