//! Fuzzes how a gateway reads the text of a statement before planning: the parser, the code that
//! runs before the parser, and the text that lists of statements show.
//!
//! Input: the text. It is also used as a password, which no list and no error may show.
#![no_main]

use libfuzzer_sys::fuzz_target;
use volary_fuzz::guard::on_large_stack;
use volary_gateway::sql::parse::parse;
use volary_gateway::sql::without_passwords;

/// Shortest password that is checked, in bytes. A shorter one may be a part of any word.
const SHORTEST_PASSWORD: usize = 8;

/// Texts that come before a password.
const PASSWORD_PREFIXES: [&str; 4] = [
    "CREATE USER kea PASSWORD ",
    "ALTER USER kea WITH password=",
    "EXPLAIN CREATE ROLE kea NOADMIN IDENTIFIED BY ",
    "SET PASSWORD FOR kea = ",
];

fuzz_target!(init: volary_fuzz::guard::start("sql", volary_fuzz::seeds::statements::texts), |data: &[u8]| {
    if let Ok(sql) = std::str::from_utf8(data) {
        on_large_stack(|| {
            let _shown = without_passwords(sql);
            let _statement = parse(sql);
            check_hidden(sql);
        });
    }
});

fn check_hidden(password: &str) {
    // Writes the password correctly quoted, with its own quotes not doubled, and without quotes.
    for written in [
        format!("'{}'", password.replace('\'', "''")),
        format!("'{password}'"),
        password.to_owned(),
    ] {
        for before in PASSWORD_PREFIXES {
            let sql = format!("{before}{written}");
            let shown = without_passwords(&sql);
            // The advice is part of every such error, so a password that occurs in the advice is
            // not a leak.
            let advice = parse(&format!("{before}()"))
                .map_or_else(|error| error.to_string(), |_| String::new());
            let is_secret = is_secret(password, before) && !advice.contains(password);
            assert!(
                !is_secret || !shown.contains(password),
                "{sql} is listed as {shown}"
            );
            if let Err(error) = parse(&sql) {
                let said = error.to_string();
                assert!(
                    !is_secret || !said.contains(password),
                    "{sql} is refused with {said}"
                );
            }
        }
    }
}

fn is_secret(password: &str, before: &str) -> bool {
    password.len() >= SHORTEST_PASSWORD
        && !before.contains(password)
        // The mark that replaces a password can also occur in the password itself.
        && !password.contains('…')
        // Without quotes, a text of spaces and semicolons is no password.
        && password.contains(|character: char| !character.is_whitespace() && character != ';')
}
