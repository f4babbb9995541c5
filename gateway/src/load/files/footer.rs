//! Checks the footer of a Parquet file before the Parquet reader sees it.
//!
//! A footer lists all columns, each with the number of its children. The reader makes a tree of
//! them. It calls itself for each level, and allocates memory for as many children and parts as the
//! footer claims. Twenty thousand levels overflow its stack, and two billion children need more
//! memory than there is. Both end the process. So this module walks over the list first, without a
//! call for each level.
//!
//! The reader ignores the type that a field claims to have. If that type is wrong, the reader and
//! this module would understand the footer differently. So this module requires the right types.

use volary_flight_proto::{Error, ErrorCode, Result};

use super::thrift::{Kind, Thrift};

/// Maximum number of nested groups. A list has two groups, and so has a map. So a type of 150
/// levels stays below this limit.
const MAX_LEVELS: usize = 500;

/// Maximum sum, over all columns, of the number of groups above a column. For each column, the
/// reader keeps the names of all groups above it. This many names take a few hundred megabytes.
const MAX_NAMES: usize = 4 << 20;

const LOGICAL_TYPE: Kind = {
    const EMPTY: Kind = Kind::Struct(&[]);
    const UNIT: Kind = Kind::Struct(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)]);
    const TIME: Kind = Kind::Struct(&[(1, Kind::Bool), (2, UNIT)]);
    Kind::Struct(&[
        (1, EMPTY),
        (2, EMPTY),
        (3, EMPTY),
        (4, EMPTY),
        (5, Kind::Struct(&[(1, Kind::Number), (2, Kind::Number)])),
        (6, EMPTY),
        (7, TIME),
        (8, TIME),
        (10, Kind::Struct(&[(1, Kind::Byte), (2, Kind::Bool)])),
        (11, EMPTY),
        (12, EMPTY),
        (13, EMPTY),
        (14, EMPTY),
        (15, EMPTY),
        (16, Kind::Struct(&[(1, Kind::Byte)])),
        (17, Kind::Struct(&[(1, Kind::Bytes)])),
        (18, Kind::Struct(&[(1, Kind::Bytes), (2, Kind::Number)])),
    ])
};

/// The field with the number of children, which this module reads by itself.
const CHILDREN: i16 = 5;
const ELEMENT: &[(i16, Kind)] = &[
    (1, Kind::Number),
    (2, Kind::Number),
    (3, Kind::Number),
    (4, Kind::Bytes),
    (CHILDREN, Kind::Number),
    (6, Kind::Number),
    (7, Kind::Number),
    (8, Kind::Number),
    (9, Kind::Number),
    (10, LOGICAL_TYPE),
];

const KEY_VALUE: Kind = Kind::Struct(&[(1, Kind::Bytes), (2, Kind::Bytes)]);

const ROW_GROUP: Kind = {
    const STATISTICS: Kind = Kind::Struct(&[
        (1, Kind::Bytes),
        (2, Kind::Bytes),
        (3, Kind::Number),
        (4, Kind::Number),
        (5, Kind::Bytes),
        (6, Kind::Bytes),
        (7, Kind::Bool),
        (8, Kind::Bool),
    ]);
    const NUMBERS: Kind = Kind::Struct(&[(1, Kind::Number), (2, Kind::Number), (3, Kind::Number)]);
    const SIZES: Kind = Kind::Struct(&[
        (1, Kind::Number),
        (2, Kind::List(&Kind::Number)),
        (3, Kind::List(&Kind::Number)),
    ]);
    const BOX: Kind = Kind::Struct(&[
        (1, Kind::Double),
        (2, Kind::Double),
        (3, Kind::Double),
        (4, Kind::Double),
        (5, Kind::Double),
        (6, Kind::Double),
        (7, Kind::Double),
        (8, Kind::Double),
    ]);
    const PLACES: Kind = Kind::Struct(&[(1, BOX), (2, Kind::List(&Kind::Number))]);
    const COLUMN: Kind = Kind::Struct(&[
        (1, Kind::Number),
        (2, Kind::List(&Kind::Number)),
        (3, Kind::List(&Kind::Bytes)),
        (4, Kind::Number),
        (5, Kind::Number),
        (6, Kind::Number),
        (7, Kind::Number),
        (8, Kind::List(&KEY_VALUE)),
        (9, Kind::Number),
        (10, Kind::Number),
        (11, Kind::Number),
        (12, STATISTICS),
        (13, Kind::List(&NUMBERS)),
        (14, Kind::Number),
        (15, Kind::Number),
        (16, SIZES),
        (17, PLACES),
    ]);
    const CHUNK: Kind = Kind::Struct(&[
        (1, Kind::Bytes),
        (2, Kind::Number),
        (3, COLUMN),
        (4, Kind::Number),
        (5, Kind::Number),
        (6, Kind::Number),
        (7, Kind::Number),
    ]);
    const SORTING: Kind = Kind::Struct(&[(1, Kind::Number), (2, Kind::Bool), (3, Kind::Bool)]);
    Kind::Struct(&[
        (1, Kind::List(&CHUNK)),
        (2, Kind::Number),
        (3, Kind::Number),
        (4, Kind::List(&SORTING)),
        (5, Kind::Number),
        (6, Kind::Number),
        (7, Kind::Number),
    ])
};

/// The field with the list of columns, which this module reads by itself.
const COLUMNS: i16 = 2;
const FOOTER: &[(i16, Kind)] = &[
    (1, Kind::Number),
    (COLUMNS, Kind::List(&Kind::Struct(ELEMENT))),
    (3, Kind::Number),
    (4, Kind::List(&ROW_GROUP)),
    (5, Kind::List(&KEY_VALUE)),
    (6, Kind::Bytes),
    (7, {
        const ORDER: Kind = Kind::Struct(&[(1, Kind::Struct(&[]))]);
        Kind::List(&ORDER)
    }),
];

/// Refuses a footer with which the reader might end the process.
///
/// # Errors
/// `DATA_LOSS` for a damaged footer, and `INVALID_ARGUMENT` for columns that are nested too deeply.
pub(super) fn check(footer: &[u8]) -> Result<()> {
    let mut input = Thrift::new(footer);
    let mut last = 0;
    while let Some(field) = input.field(&mut last, FOOTER).ok_or_else(damaged)? {
        if field.id == COLUMNS {
            check_columns(&mut input)?;
        } else {
            input.skip(field).ok_or_else(damaged)?;
        }
    }
    Ok(())
}

fn check_columns(input: &mut Thrift<'_>) -> Result<()> {
    let count = input.list(&Kind::Struct(ELEMENT)).ok_or_else(damaged)?;
    // `open` has the number of missing children of each open group. `to_come` is their sum.
    let (mut open, mut to_come): (Vec<usize>, usize) = (Vec::new(), 0);
    let mut names = 0;
    for element in 1..=count {
        let children = children(input).ok_or_else(damaged)?;
        if let Some(group) = open.last_mut() {
            *group -= 1;
            to_come -= 1;
        }
        names += open.len();
        if children > 0 {
            open.push(children);
            to_come += children;
        }
        if to_come > count - element {
            return Err(damaged());
        }
        if open.len() > MAX_LEVELS {
            return Err(Error::invalid(format!(
                "its columns are nested too deeply: there are more than {MAX_LEVELS} levels of groups; write the file with flatter columns"
            )));
        }
        if names > MAX_NAMES {
            return Err(Error::invalid(format!(
                "it has too many columns that are nested deeply: together they have more than {MAX_NAMES} parent groups; write the file with fewer or flatter columns"
            )));
        }
        while open.pop_if(|group| *group == 0).is_some() {}
    }
    Ok(())
}

/// Reads an element of the list of columns, and returns the number of its children.
fn children(input: &mut Thrift<'_>) -> Option<usize> {
    let (mut last, mut children) = (0, 0);
    while let Some(field) = input.field(&mut last, ELEMENT)? {
        if field.id == CHILDREN {
            children = usize::try_from(i32::try_from(input.number()?).ok()?).ok()?;
        } else {
            input.skip(field)?;
        }
    }
    Some(children)
}

fn damaged() -> Error {
    Error::new(
        ErrorCode::DataLoss,
        "Parquet error: the footer is damaged; write the file again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAF: &[u8] = b"\x15\x02\x25\x02\x18\x01k\x00";

    fn varint(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number > 0x7f {
            bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
            number >>= 7;
        }
        bytes.push(u8::try_from(number).unwrap());
        bytes
    }

    fn group(children: u64) -> Vec<u8> {
        let mut element = b"\x35\x02\x18\x01g\x15".to_vec();
        element.extend(varint(2 * children));
        element.push(0);
        element
    }

    /// Returns a footer with these columns. `end` follows the number of rows.
    fn footer(elements: &[Vec<u8>], end: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x15\x02\x19\xfc".to_vec();
        bytes.extend(varint(elements.len() as u64));
        bytes.extend(elements.concat());
        bytes.extend(b"\x16\x00");
        bytes.extend(end);
        bytes.push(0);
        bytes
    }

    fn chain(levels: usize) -> Vec<Vec<u8>> {
        let mut elements = vec![group(1); levels];
        elements.push(LEAF.to_vec());
        elements
    }

    #[test]
    fn columns_are_nested_as_deep_as_the_reader_can_follow() {
        for levels in [0, 1, 30, MAX_LEVELS] {
            check(&footer(&chain(levels), b"\x19\x0c")).unwrap();
        }
        for levels in [MAX_LEVELS + 1, 20_000] {
            let error = check(&footer(&chain(levels), b"\x19\x0c")).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            assert!(error.message().contains("nested too deeply"), "{error}");
        }
        let wide = 10_000;
        let mut many = vec![group(1); MAX_LEVELS - 1];
        many.push(group(wide));
        many.extend(vec![LEAF.to_vec(); usize::try_from(wide).unwrap()]);
        let error = check(&footer(&many, b"")).unwrap_err();
        assert!(error.message().contains("too many columns"), "{error}");
    }

    #[test]
    fn groups_have_the_children_that_they_say() {
        let leaf = || LEAF.to_vec();
        check(&footer(&[group(2), group(1), leaf(), leaf()], b"")).unwrap();
        for elements in [
            vec![group(2), leaf()],
            vec![group(1 << 30), leaf()],
            vec![group(2), group(2), leaf(), leaf()],
            vec![group(1 << 40), leaf()],
        ] {
            let error = check(&footer(&elements, b"")).unwrap_err();
            assert_eq!(error.code(), ErrorCode::DataLoss, "{error}");
        }
    }

    #[test]
    fn a_footer_whose_fields_are_others_than_they_say_is_damaged() {
        let columns = chain(1);
        for end in [
            // Two billion row groups are announced, and none follows.
            b"\x19\xfc\xff\xff\xff\xff\x07".as_slice(),
            // A number of rows is where row groups should be.
            b"\x15\x00",
            // The row groups are numbers.
            b"\x19\x15\x00",
            // The list has booleans as elements, which take no byte each.
            b"\xa9\xf1\xff\xff\xff\xff\x07",
            // A number does not end.
            b"\xa5\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            // A text is longer than the footer.
            b"\x38\xff\x7f",
        ] {
            let error = check(&footer(&columns, end)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::DataLoss, "{end:?}");
        }
        for damaged in [b"".as_slice(), b"\x15", b"\x15\x02"] {
            check(damaged).unwrap_err();
        }
        // An unknown field is skipped.
        check(&footer(&columns, b"\xac\x15\x02\x00")).unwrap();
    }
}
