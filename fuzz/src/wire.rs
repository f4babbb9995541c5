//! The mutations of libFuzzer change single bytes. In a nested message, most such changes make the
//! lengths around them wrong, and the message is refused before anything reads it. So this module
//! splits messages into their fields, changes one of them, and joins them again. It needs no
//! schema: a length-delimited field that can be read as a message is treated as one.

use prost::encoding::{decode_varint, encode_varint};

/// Maximum nesting depth of messages that are split. Decoders stop at 100 levels.
const MAX_LEVELS: usize = 110;

/// One mutation in this number is left to libFuzzer.
const PLAIN_ONE_IN: u64 = 4;

#[derive(Debug, Clone, PartialEq)]
struct Field {
    number: u64,
    value: Value,
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

/// Mutates an input that consists of `head` bytes and a message. The bytes choose what a target
/// does with the message. Call it in `fuzz_mutator!`, with its arguments.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32, head: usize) -> usize {
    let mut random = Random(u64::from(seed) << 1 | 1);
    if size > head
        && !random.one_in(PLAIN_ONE_IN)
        && let Some(mut fields) = parse(&data[head..size], MAX_LEVELS)
        && !fields.is_empty()
    {
        for _ in 0..=random.below(2) {
            let chosen = random.below(count(&fields));
            let donor = donor(&fields, &mut random);
            change(&mut fields, chosen, donor, &mut random);
        }
        let mut encoded = Vec::new();
        encode(&fields, &mut encoded);
        if encoded.len() <= max_size - head {
            data[head..head + encoded.len()].copy_from_slice(&encoded);
            return head + encoded.len();
        }
    }
    libfuzzer_sys::fuzzer_mutate(data, size, max_size)
}

/// Returns the length-delimited fields of a message, up to the first unreadable one. Targets take
/// them as a list of messages.
pub fn decode_list(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut items = Vec::new();
    while let Some(field) = field(&mut bytes, 0) {
        if let Value::Bytes(item) = field.value {
            items.push(item);
        }
    }
    items
}

/// Encodes items so that [`decode_list`] can read them.
pub(crate) fn encode_list<T: AsRef<[u8]>>(items: impl IntoIterator<Item = T>) -> Vec<u8> {
    let fields = items.into_iter().map(|item| Field {
        number: 1,
        value: Value::Bytes(item.as_ref().to_vec()),
    });
    let mut encoded = Vec::new();
    encode(&fields.collect::<Vec<_>>(), &mut encoded);
    encoded
}

fn parse(mut bytes: &[u8], levels: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        fields.push(field(&mut bytes, levels)?);
    }
    Some(fields)
}

fn field(bytes: &mut &[u8], levels: usize) -> Option<Field> {
    let key = decode_varint(bytes).ok()?;
    let number = key >> 3;
    if number == 0 {
        return None;
    }
    let value = match key & 7 {
        0 => Value::Varint(decode_varint(bytes).ok()?),
        1 => Value::Fixed64(*take::<8>(bytes)?),
        2 => {
            let length = usize::try_from(decode_varint(bytes).ok()?).ok()?;
            let (content, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            let message = (levels > 0 && !content.is_empty())
                .then(|| parse(content, levels - 1))
                .flatten();
            message.map_or_else(|| Value::Bytes(content.to_vec()), Value::Message)
        }
        5 => Value::Fixed32(*take::<4>(bytes)?),
        _ => return None,
    };
    Some(Field { number, value })
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(taken)
}

fn encode(fields: &[Field], out: &mut Vec<u8>) {
    for Field { number, value } in fields {
        let wire_type = match value {
            Value::Varint(_) => 0,
            Value::Fixed64(_) => 1,
            Value::Bytes(_) | Value::Message(_) => 2,
            Value::Fixed32(_) => 5,
        };
        encode_varint(number << 3 | wire_type, out);
        match value {
            Value::Varint(value) => encode_varint(*value, out),
            Value::Fixed64(value) => out.extend(value),
            Value::Fixed32(value) => out.extend(value),
            Value::Bytes(value) => {
                encode_varint(value.len() as u64, out);
                out.extend(value);
            }
            Value::Message(fields) => {
                let mut content = Vec::new();
                encode(fields, &mut content);
                encode_varint(content.len() as u64, out);
                out.extend(content);
            }
        }
    }
}

/// Counts the fields of a message at all depths.
fn count(fields: &[Field]) -> usize {
    let within = |field: &Field| match &field.value {
        Value::Message(fields) => count(fields),
        _ => 0,
    };
    fields.iter().map(|field| 1 + within(field)).sum()
}

/// Returns the field at a position among the fields of all depths.
fn nth<'a>(fields: &'a [Field], nth_left: &mut usize) -> Option<&'a Field> {
    for field in fields {
        if *nth_left == 0 {
            return Some(field);
        }
        *nth_left -= 1;
        if let Value::Message(within) = &field.value
            && let Some(found) = nth(within, nth_left)
        {
            return Some(found);
        }
    }
    None
}

fn donor(fields: &[Field], random: &mut Random) -> Option<Field> {
    let mut position = random.below(count(fields));
    nth(fields, &mut position).cloned()
}

/// Changes the field at a position among the fields of all depths, or the list that contains it.
fn change(
    fields: &mut Vec<Field>,
    mut position: usize,
    donor: Option<Field>,
    random: &mut Random,
) -> Option<usize> {
    for index in 0..fields.len() {
        if position == 0 {
            change_at(fields, index, donor, random);
            return None;
        }
        position -= 1;
        if let Value::Message(within) = &mut fields[index].value {
            position = change(within, position, donor.clone(), random)?;
        }
    }
    Some(position)
}

fn change_at(fields: &mut Vec<Field>, index: usize, donor: Option<Field>, random: &mut Random) {
    match (random.below(10), donor) {
        (0, _) => _ = fields.remove(index),
        (1, _) => fields.insert(index, fields[index].clone()),
        (2, _) => {
            let other = random.below(fields.len());
            fields.swap(index, other);
        }
        (3, Some(donor)) => fields.insert(index, donor),
        (4, Some(donor)) => fields[index].value = donor.value,
        // The alternatives of a `oneof` have small, consecutive field numbers.
        (5, _) => fields[index].number = 1 + random.below(40) as u64,
        // Puts a copy of the field into the field itself.
        (6, _) => {
            let field = fields[index].clone();
            if let Value::Message(within) = &mut fields[index].value {
                within.push(field);
            }
        }
        _ => change_value(&mut fields[index].value, random),
    }
}

fn change_value(value: &mut Value, random: &mut Random) {
    match value {
        Value::Varint(value) => {
            *value = match random.below(7) {
                0 => 0,
                1 => 1,
                2 => u64::MAX,
                3 => u64::from(u32::MAX >> random.below(2)),
                4 => value.wrapping_add(1),
                5 => value.wrapping_sub(1),
                _ => *value ^ 1 << random.below(64),
            }
        }
        Value::Fixed64(value) => value[random.below(8)] = random.below(256) as u8,
        Value::Fixed32(value) => value[random.below(4)] = random.below(256) as u8,
        Value::Bytes(value) => {
            let size = value.len();
            let max_size = size.max(8) * 2;
            value.resize(max_size, 0);
            let size = libfuzzer_sys::fuzzer_mutate(value, size, max_size);
            value.truncate(size);
        }
        Value::Message(fields) => match random.below(3) {
            0 => fields.clear(),
            1 => fields.reverse(),
            _ => fields.truncate(random.below(fields.len() + 1)),
        },
    }
}

/// The xorshift64 random number generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn one_in(&mut self, parts: u64) -> bool {
        self.next() % parts == 0
    }
}
