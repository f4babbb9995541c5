//! Only the parts of Thrift's compact protocol that Parquet's footers need are implemented.

/// Maximum number of levels in an unknown field that is skipped.
const MAX_DEPTH: usize = 64;

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;

/// The type of a field's value.
#[derive(Debug, Clone, Copy)]
pub(super) enum ValueType {
    Bool,
    Byte,
    /// An integer of two, four or eight bytes. All three are encoded in the same way.
    Number,
    Double,
    Bytes,
    List(&'static ValueType),
    /// A struct, with the ids and the types of its known fields.
    Struct(&'static [(i16, ValueType)]),
}

impl ValueType {
    /// Returns whether values of this type are encoded with `wire_type`.
    fn matches_wire_type(self, wire_type: u8) -> bool {
        match self {
            Self::Bool => matches!(wire_type, TRUE | FALSE),
            Self::Byte => wire_type == BYTE,
            Self::Number => matches!(wire_type, I16 | I32 | I64),
            Self::Double => wire_type == DOUBLE,
            Self::Bytes => wire_type == BINARY,
            Self::List(_) => wire_type == LIST,
            Self::Struct(_) => wire_type == STRUCT,
        }
    }
}

/// A field of a struct whose header has been read. Its value comes next.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldHeader {
    pub(super) id: i16,
    wire_type: u8,
    /// The type of a known field. `None` for an unknown field.
    kind: Option<ValueType>,
}

/// The part of a message that has not been read yet. The methods return `None` if the message is
/// invalid.
#[derive(Debug)]
pub(super) struct ThriftReader<'a>(&'a [u8]);

impl<'a> ThriftReader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn advance(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn length(&mut self) -> Option<usize> {
        let length = usize::try_from(self.varint()?).ok()?;
        // Each counted item takes at least one byte.
        (length <= self.0.len()).then_some(length)
    }

    /// Reads an integer in zigzag encoding.
    pub(super) fn number(&mut self) -> Option<i64> {
        let number = self.varint()?;
        let half = i64::try_from(number >> 1).ok()?;
        Some(if number & 1 == 0 { half } else { !half })
    }

    /// Reads the header of the next field of a struct. `last` is the id of the field before it, and
    /// becomes the id of this field. `fields` are the known fields of the struct. The inner `None`
    /// means the end of the struct.
    pub(super) fn field(
        &mut self,
        last: &mut i16,
        fields: &'static [(i16, ValueType)],
    ) -> Option<Option<FieldHeader>> {
        let header = self.byte()?;
        let written = header & 0x0f;
        if written == 0 {
            return Some(None);
        }
        *last = match header >> 4 {
            0 => i16::try_from(self.number()?).ok()?,
            delta => last.checked_add(i16::from(delta))?,
        };
        let known_field = fields.iter().find(|(known, _)| known == last);
        let kind = known_field.map(|(_, kind)| *kind);
        let field = FieldHeader {
            id: *last,
            wire_type: written,
            kind,
        };
        kind.is_none_or(|kind| kind.matches_wire_type(written))
            .then_some(Some(field))
    }

    /// Skips the value of a field.
    pub(super) fn skip(&mut self, field: FieldHeader) -> Option<()> {
        self.skip_value(field.wire_type, field.kind, MAX_DEPTH)
    }

    /// Reads the header of a list of elements of this type, and returns the number of elements.
    pub(super) fn list(&mut self, element: &ValueType) -> Option<usize> {
        let (written, count) = self.any_list()?;
        (count == 0 || element.matches_wire_type(written)).then_some(count)
    }

    fn any_list(&mut self) -> Option<(u8, usize)> {
        let header = self.byte()?;
        let count = match usize::from(header >> 4) {
            15 => self.length()?,
            count => count,
        };
        Some((header & 0x0f, count))
    }

    /// Skips a value with this encoded type. If `kind` is `None`, the value may have up to `depth`
    /// levels. Returns `None` for maps and for lists of booleans: no footer has them, and readers
    /// disagree about their encoding.
    fn skip_value(&mut self, wire_type: u8, kind: Option<ValueType>, depth: usize) -> Option<()> {
        let depth = match kind {
            Some(_) => MAX_DEPTH,
            None => depth.checked_sub(1)?,
        };
        match wire_type {
            // A boolean takes no byte, because its encoded type is its value.
            TRUE | FALSE => Some(()),
            BYTE => self.advance(1),
            I16 | I32 | I64 => self.varint().map(|_| ()),
            DOUBLE => self.advance(8),
            BINARY => self.length().and_then(|length| self.advance(length)),
            LIST | SET => {
                let element = match kind {
                    Some(ValueType::List(element)) => Some(*element),
                    _ => None,
                };
                let (written, count) = self.any_list()?;
                let is_valid = element.is_none_or(|element| element.matches_wire_type(written))
                    && !matches!(written, TRUE | FALSE);
                if count > 0 && !is_valid {
                    return None;
                }
                (0..count).try_for_each(|_| self.skip_value(written, element, depth))
            }
            STRUCT => {
                let fields = match kind {
                    Some(ValueType::Struct(fields)) => fields,
                    _ => &[],
                };
                let mut last = 0;
                while let Some(field) = self.field(&mut last, fields)? {
                    self.skip_value(field.wire_type, field.kind, depth)?;
                }
                Some(())
            }
            _ => None,
        }
    }
}
