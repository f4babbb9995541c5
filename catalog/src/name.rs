use volary_flight_proto::{Error, Result};

/// Maximum length of a name, in bytes.
const MAX_BYTES: usize = 255;

/// Characters that are invisible, or that change the direction of the text around them. With them,
/// two different names could look the same. These are the general category Cf of Unicode 16,
/// without visible characters and without the controls of notations (hieroglyphs, shorthand,
/// music).
const INVISIBLE: [std::ops::RangeInclusive<char>; 9] = [
    '\u{ad}'..='\u{ad}',
    '\u{61c}'..='\u{61c}',
    '\u{180e}'..='\u{180e}',
    '\u{200b}'..='\u{200f}',
    '\u{202a}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{feff}'..='\u{feff}',
    '\u{fff9}'..='\u{fffb}',
    '\u{e0000}'..='\u{e007f}',
];

/// Refuses a name that is empty or too long, or that could look like another one.
///
/// # Errors
/// `INVALID_ARGUMENT`, with the name and what is wrong with it.
pub(super) fn check(name: &str) -> Result<()> {
    let is_invisible = |letter: char| {
        letter.is_control() || INVISIBLE.iter().any(|unseen| unseen.contains(&letter))
    };
    let fault = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > MAX_BYTES {
        format!("it has {} bytes, but {MAX_BYTES} are allowed", name.len())
    } else if name.trim() != name {
        "it begins or ends with white space".to_owned()
    } else if let Some(letter) = name.chars().find(|letter| is_invisible(*letter)) {
        format!(
            "it contains the invisible character U+{:04X}",
            u32::from(letter)
        )
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(MAX_BYTES).collect();
    Err(Error::invalid(format!(
        "{shown:?} cannot be a name: {fault}; choose another one"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_like_others_are_refused() {
        for name in [
            "kea",
            "Kéa",
            "two words",
            "a-b.c",
            "it's",
            "\"quoted\"",
            "鳥",
            "طائر",
        ] {
            check(name).unwrap();
        }
        let long = "x".repeat(MAX_BYTES + 1);
        for name in [
            "",
            " ",
            "kea ",
            "\u{a0}kea",
            "ke\u{200b}a",
            "\u{202e}aek",
            "ke\na",
            "kea\u{feff}",
            &long,
        ] {
            let refused = check(name).unwrap_err();
            assert!(refused.message().contains("cannot be a name"), "{refused}");
        }
    }
}
