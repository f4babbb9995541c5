/// Returns whether a text begins with a name, in upper or lower case.
pub(super) fn starts_with(text: &str, name: &str) -> bool {
    text.get(..name.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(name))
}

/// Returns the characters up to the next quote, and what follows that. A backslash stands before a
/// character that would otherwise have a meaning.
pub(super) fn quoted(text: &str) -> (String, &str) {
    let mut quoted = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (quoted, &text[at + 1..]),
            '\\' => quoted.push(chars.next().map_or('\\', |(_, escaped)| escaped)),
            other => quoted.push(other),
        }
    }
    (quoted, "")
}

/// Returns the ending of an ordinal number that ends with these digits: `st`, `nd`, `rd` or `th`.
pub(super) fn ordinal_ending(digits: &str) -> &'static str {
    let mut last = digits.bytes().rev();
    let (last, before) = (last.next(), last.next());
    match (before, last) {
        (Some(b'1'), _) => "th",
        (_, Some(b'1')) => "st",
        (_, Some(b'2')) => "nd",
        (_, Some(b'3')) => "rd",
        _ => "th",
    }
}
