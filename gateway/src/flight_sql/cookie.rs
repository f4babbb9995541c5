//! JDBC and ODBC keep cookies, and ADBC does if it is configured to.
//!
//! One cookie names the session of a client without a token of its own. The other cookie is the
//! newest bearer token of a session: JDBC and ODBC still show the token that they logged in
//! with, which expires.

use tonic::codegen::http::HeaderMap;

use super::sessions::SessionToken;

const SESSION: &str = "volary-session";

const BEARER: &str = "volary-bearer";

/// Returns the token of the session that the call's cookies name.
pub(super) fn session_token(headers: &HeaderMap) -> Option<SessionToken> {
    cookie_values(headers, SESSION).find_map(SessionToken::parse)
}

/// Returns the bearer token among the call's cookies.
pub(super) fn bearer_token(headers: &HeaderMap) -> Option<String> {
    cookie_values(headers, BEARER).next().map(str::to_owned)
}

fn cookie_values<'a>(headers: &'a HeaderMap, wanted: &str) -> impl Iterator<Item = &'a str> {
    headers
        .get_all("cookie")
        .iter()
        .filter_map(|header| header.to_str().ok())
        .flat_map(|header| header.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .filter(move |(name, _)| *name == wanted)
        .map(|(_, value)| value.trim_matches('"'))
}

/// Returns the cookie with which a client shows the session's token from now on. The cookie has no
/// attributes. A Flight client has no path to compare, so it sends a cookie without attributes with
/// every call. Java would quote the value of a cookie with an attribute such as `Max-Age`.
pub(super) fn session_cookie(token: &SessionToken) -> String {
    format!("{SESSION}={}", token.as_str())
}

/// Returns the cookie with which a client shows the bearer token from now on.
pub(super) fn bearer_cookie(token: &str) -> String {
    format!("{BEARER}={token}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(headers: &[&str]) -> Option<SessionToken> {
        let mut shown = HeaderMap::new();
        for header in headers {
            shown.append("cookie", header.parse().unwrap());
        }
        session_token(&shown)
    }

    #[test]
    fn the_session_is_found_among_the_cookies_of_a_load_balancer() {
        let token = SessionToken::new();
        let cookie = session_cookie(&token);
        let quoted = format!("{SESSION}=\"{}\"", token.as_str());
        for headers in [
            vec![cookie.clone()],
            vec![format!("lb=7; {cookie}")],
            vec![format!("{cookie};lb=7")],
            vec!["lb=7".to_owned(), quoted],
            vec![format!("{SESSION}=old;{cookie}")],
        ] {
            let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
            assert_eq!(shown(&headers), Some(token.clone()), "{headers:?}");
        }
    }

    #[test]
    fn a_bearer_token_is_found_beside_the_session() {
        let mut shown = HeaderMap::new();
        let cookies = format!("volary-session=x; {}", bearer_cookie("volary-bearer-1f"));
        shown.append("cookie", cookies.parse().unwrap());
        assert_eq!(bearer_token(&shown).as_deref(), Some("volary-bearer-1f"));
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }

    #[test]
    fn cookies_of_others_name_no_session() {
        for header in ["", "lb=7", "volary-session", "volary-session=7", ";;="] {
            assert_eq!(shown(&[header]), None, "{header}");
        }
        assert_eq!(shown(&[]), None);
    }
}
