//! The text of a statement, as a gateway reads it, before anything is planned: the parser, what stands in front of it, and what statements
//! are listed as.
//!
//! Input: the text. It is a password, too, of which nothing is listed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use volary_fuzz::guard::on_large_stack;
use volary_gateway::engine::parse::parse;
use volary_gateway::engine::without_passwords;

/// A shorter password may be a part of any word.
const SHORTEST_PASSWORD: usize = 8;

/// What stands before a password.
const BEFORE: [&str; 4] = [
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
    // As it should be written, with its own quotes not doubled, and without quotes around it.
    for written in [
        format!("'{}'", password.replace('\'', "''")),
        format!("'{password}'"),
        password.to_owned(),
    ] {
        for before in BEFORE {
            let sql = format!("{before}{written}");
            // The quotes of what is shown in its place are nobody's.
            let shown = without_passwords(&sql).replace("'…'", "…");
            // The words of the advice are in every such error.
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
        // What stands for a password is one, too.
        && !password.contains('…')
        // No password is there without quotes.
        && password.contains(|character: char| !character.is_whitespace() && character != ';')
}
