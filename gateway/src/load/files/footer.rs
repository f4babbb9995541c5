//! The footer of a Parquet file lists all columns, each with the number of its children. The reader
//! builds a tree of them. It recurses for each level, and allocates memory for as many children and
//! parts as the footer claims. Twenty thousand levels overflow its stack, and two billion children
//! need more memory than there is. Both end the process. So this module checks the list first,
//! without recursion.
//!
//! The reader ignores the type that a field claims to have. If that type is wrong, the reader and
//! this module would understand the footer differently. So this module requires the right types.

use volary_flight_proto::{Error, ErrorCode, Result};

use super::thrift::{ThriftReader, ValueType};

/// Maximum number of nested groups. A list or a map takes two groups, so a type with 150 levels
/// stays below this limit.
const MAX_LEVELS: usize = 500;

/// Maximum sum, over all columns, of the number of groups above a column. For each column, the
/// reader keeps the names of all groups above it. At this limit they take a few hundred megabytes.
const MAX_NAMES: usize = 4 << 20;

const LOGICAL_TYPE: ValueType = {
    const EMPTY: ValueType = ValueType::Struct(&[]);
    const UNIT: ValueType = ValueType::Struct(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)]);
    const TIME: ValueType = ValueType::Struct(&[(1, ValueType::Bool), (2, UNIT)]);
    ValueType::Struct(&[
        (1, EMPTY),
        (2, EMPTY),
        (3, EMPTY),
        (4, EMPTY),
        (
            5,
            ValueType::Struct(&[(1, ValueType::Number), (2, ValueType::Number)]),
        ),
        (6, EMPTY),
        (7, TIME),
        (8, TIME),
        (
            10,
            ValueType::Struct(&[(1, ValueType::Byte), (2, ValueType::Bool)]),
        ),
        (11, EMPTY),
        (12, EMPTY),
        (13, EMPTY),
        (14, EMPTY),
        (15, EMPTY),
        (16, ValueType::Struct(&[(1, ValueType::Byte)])),
        (17, ValueType::Struct(&[(1, ValueType::Bytes)])),
        (
            18,
            ValueType::Struct(&[(1, ValueType::Bytes), (2, ValueType::Number)]),
        ),
    ])
};

/// Id of the field with the number of children.
const CHILDREN_FIELD: i16 = 5;
const COLUMN_ELEMENT: &[(i16, ValueType)] = &[
    (1, ValueType::Number),
    (2, ValueType::Number),
    (3, ValueType::Number),
    (4, ValueType::Bytes),
    (CHILDREN_FIELD, ValueType::Number),
    (6, ValueType::Number),
    (7, ValueType::Number),
    (8, ValueType::Number),
    (9, ValueType::Number),
    (10, LOGICAL_TYPE),
];

const KEY_VALUE: ValueType = ValueType::Struct(&[(1, ValueType::Bytes), (2, ValueType::Bytes)]);

const ROW_GROUP: ValueType = {
    const STATISTICS: ValueType = ValueType::Struct(&[
        (1, ValueType::Bytes),
        (2, ValueType::Bytes),
        (3, ValueType::Number),
        (4, ValueType::Number),
        (5, ValueType::Bytes),
        (6, ValueType::Bytes),
        (7, ValueType::Bool),
        (8, ValueType::Bool),
    ]);
    const ENCODING_STATISTICS: ValueType = ValueType::Struct(&[
        (1, ValueType::Number),
        (2, ValueType::Number),
        (3, ValueType::Number),
    ]);
    const SIZE_STATISTICS: ValueType = ValueType::Struct(&[
        (1, ValueType::Number),
        (2, ValueType::List(&ValueType::Number)),
        (3, ValueType::List(&ValueType::Number)),
    ]);
    const BOUNDING_BOX: ValueType = ValueType::Struct(&[
        (1, ValueType::Double),
        (2, ValueType::Double),
        (3, ValueType::Double),
        (4, ValueType::Double),
        (5, ValueType::Double),
        (6, ValueType::Double),
        (7, ValueType::Double),
        (8, ValueType::Double),
    ]);
    const GEO_STATISTICS: ValueType =
        ValueType::Struct(&[(1, BOUNDING_BOX), (2, ValueType::List(&ValueType::Number))]);
    const COLUMN: ValueType = ValueType::Struct(&[
        (1, ValueType::Number),
        (2, ValueType::List(&ValueType::Number)),
        (3, ValueType::List(&ValueType::Bytes)),
        (4, ValueType::Number),
        (5, ValueType::Number),
        (6, ValueType::Number),
        (7, ValueType::Number),
        (8, ValueType::List(&KEY_VALUE)),
        (9, ValueType::Number),
        (10, ValueType::Number),
        (11, ValueType::Number),
        (12, STATISTICS),
        (13, ValueType::List(&ENCODING_STATISTICS)),
        (14, ValueType::Number),
        (15, ValueType::Number),
        (16, SIZE_STATISTICS),
        (17, GEO_STATISTICS),
    ]);
    const CHUNK: ValueType = ValueType::Struct(&[
        (1, ValueType::Bytes),
        (2, ValueType::Number),
        (3, COLUMN),
        (4, ValueType::Number),
        (5, ValueType::Number),
        (6, ValueType::Number),
        (7, ValueType::Number),
    ]);
    const SORTING: ValueType = ValueType::Struct(&[
        (1, ValueType::Number),
        (2, ValueType::Bool),
        (3, ValueType::Bool),
    ]);
    ValueType::Struct(&[
        (1, ValueType::List(&CHUNK)),
        (2, ValueType::Number),
        (3, ValueType::Number),
        (4, ValueType::List(&SORTING)),
        (5, ValueType::Number),
        (6, ValueType::Number),
        (7, ValueType::Number),
    ])
};

/// Id of the field with the list of columns.
const COLUMNS_FIELD: i16 = 2;
const FOOTER: &[(i16, ValueType)] = &[
    (1, ValueType::Number),
    (
        COLUMNS_FIELD,
        ValueType::List(&ValueType::Struct(COLUMN_ELEMENT)),
    ),
    (3, ValueType::Number),
    (4, ValueType::List(&ROW_GROUP)),
    (5, ValueType::List(&KEY_VALUE)),
    (6, ValueType::Bytes),
    (7, {
        const ORDER: ValueType = ValueType::Struct(&[(1, ValueType::Struct(&[]))]);
        ValueType::List(&ORDER)
    }),
];

/// Refuses a footer that might crash the reader, and with it the process.
///
/// # Errors
/// `DATA_LOSS` for a damaged footer, and `INVALID_ARGUMENT` for columns that are nested too deeply.
pub(super) fn check(footer: &[u8]) -> Result<()> {
    let mut input = ThriftReader::new(footer);
    let mut last = 0;
    while let Some(field) = input.field(&mut last, FOOTER).ok_or_else(damaged_footer)? {
        if field.id == COLUMNS_FIELD {
            check_columns(&mut input)?;
        } else {
            input.skip(field).ok_or_else(damaged_footer)?;
        }
    }
    Ok(())
}

fn check_columns(input: &mut ThriftReader<'_>) -> Result<()> {
    let count = input
        .list(&ValueType::Struct(COLUMN_ELEMENT))
        .ok_or_else(damaged_footer)?;
    // `open` has, for each open group, the number of children that are still missing.
    // `missing_children` is their sum.
    let (mut open, mut missing_children): (Vec<usize>, usize) = (Vec::new(), 0);
    let mut names = 0;
    for element in 1..=count {
        let children = read_child_count(input).ok_or_else(damaged_footer)?;
        if let Some(group) = open.last_mut() {
            *group -= 1;
            missing_children -= 1;
        }
        names += open.len();
        if children > 0 {
            open.push(children);
            missing_children += children;
        }
        if missing_children > count - element {
            return Err(damaged_footer());
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
fn read_child_count(input: &mut ThriftReader<'_>) -> Option<usize> {
    let (mut last, mut children) = (0, 0);
    while let Some(field) = input.field(&mut last, COLUMN_ELEMENT)? {
        if field.id == CHILDREN_FIELD {
            children = usize::try_from(i32::try_from(input.number()?).ok()?).ok()?;
        } else {
            input.skip(field)?;
        }
    }
    Some(children)
}

fn damaged_footer() -> Error {
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

    /// Returns a footer with these columns. `end` is inserted after the number of rows.
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
