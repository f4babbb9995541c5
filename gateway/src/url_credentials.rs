//! A URL may have a user name and a password before its host, and a signature after a question
//! mark. Without this module, both would appear in errors, in logs and in the list of statements.

use std::borrow::Cow;

const HIDDEN: &str = "***";
const COPY: &[u8] = b"COPY";
/// Characters that end a URL in a statement, in addition to white space.
const URL_ENDS: [char; 4] = ['\'', '"', ';', '\\'];

/// Returns the text of a statement as lists show it. If the text contains COPY, the credentials in
/// its URLs are hidden. In other statements, a URL is a value and stays as it is.
pub(crate) fn listable_text(sql: &str) -> Cow<'_, str> {
    let contains_copy = || {
        let mut words = sql.as_bytes().windows(COPY.len());
        words.any(|word| word.eq_ignore_ascii_case(COPY))
    };
    if sql.contains("://") && contains_copy() {
        without_credentials(sql)
    } else {
        Cow::Borrowed(sql)
    }
}

/// Returns the text with the credentials of each URL hidden: the user name and the password before
/// the host, and everything after a question mark.
pub(crate) fn without_credentials(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.find("://") {
        let (before, from) = rest.split_at(position + "://".len());
        shown.push_str(before);
        let is_end = |letter: char| letter.is_whitespace() || URL_ENDS.contains(&letter);
        let (url, after) = from.split_at(from.find(is_end).unwrap_or(from.len()));
        let authority = url.find(['/', '?', '#']).unwrap_or(url.len());
        let (authority, path) = url.split_at(authority);
        match authority.rsplit_once('@') {
            Some((_, host)) => shown.extend([HIDDEN, "@", host]),
            None => shown.push_str(authority),
        }
        match path.split_once('?') {
            Some((path, _)) => shown.extend([path, "?", HIDDEN]),
            None => shown.push_str(path),
        }
        rest = after;
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_logs_in_is_hidden_and_nothing_else() {
        for (text, shown) in [
            ("SELECT 1", "SELECT 1"),
            ("/data/a@b?.csv", "/data/a@b?.csv"),
            ("s3://bucket/a@b.csv", "s3://bucket/a@b.csv"),
            (
                "COPY t FROM 'https://ada:pass@word@host:80/a.csv' WITH (x = '?')",
                "COPY t FROM 'https://***@host:80/a.csv' WITH (x = '?')",
            ),
            (
                "'https://host/a.csv?sig=text', 'http://ada@b'",
                "'https://host/a.csv?***', 'http://***@b'",
            ),
            ("https://host?sig=a://b@c", "https://host?***"),
            ("://", "://"),
        ] {
            assert_eq!(without_credentials(text), shown);
        }
    }

    #[test]
    fn a_value_stays_as_it_is() {
        let value = "SELECT 'https://host/a?b=c'";
        assert_eq!(listable_text(value), value);
        assert_eq!(
            listable_text("copy t from 'http://a:b@c'"),
            "copy t from 'http://***@c'"
        );
    }
}
