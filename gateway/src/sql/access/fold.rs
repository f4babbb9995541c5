/// Returns a text in upper case. Full-width letters, which East Asian keyboards write, become the
/// ASCII letters that they look like.
pub(super) fn fold_case(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_uppercase();
    }
    text.chars()
        .map(narrow)
        .flat_map(char::to_uppercase)
        .collect()
}

fn narrow(character: char) -> char {
    match character {
        // Full-width characters have the same order as those of ASCII.
        '\u{ff01}'..='\u{ff5e}' => {
            let narrow = u32::from(character) - u32::from('\u{ff01}') + u32::from('!');
            char::from_u32(narrow).unwrap_or(character)
        }
        _ => character,
    }
}
