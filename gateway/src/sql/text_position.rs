use datafusion::sql::sqlparser::tokenizer::Location;

/// A position in a text, as sqlparser counts: lines and characters.
pub(super) struct TextPosition<'a> {
    rest: &'a str,
    line: u64,
    column: u64,
}

impl<'a> TextPosition<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            rest: text,
            line: 1,
            column: 1,
        }
    }

    /// Moves to `end` and returns the text between. The position must be at `start`. Returns `None`
    /// if it is not, or if the text ends before.
    pub(super) fn text_between(&mut self, start: Location, end: Location) -> Option<&'a str> {
        if (self.line, self.column) != (start.line, start.column) {
            return None;
        }
        let from = self.rest;
        let mut characters = from.char_indices();
        while (self.line, self.column) != (end.line, end.column) {
            let (_, character) = characters.next()?;
            if character == '\n' {
                (self.line, self.column) = (self.line + 1, 1);
            } else {
                self.column += 1;
            }
        }
        self.rest = characters.as_str();
        Some(&from[..from.len() - self.rest.len()])
    }

    /// Returns the position of a place in bytes. Returns `None` if the text ends before.
    pub(super) fn offset_of(text: &str, place: Location) -> Option<usize> {
        let start = Location { line: 1, column: 1 };
        let before = TextPosition::new(text).text_between(start, place)?;
        Some(before.len())
    }
}
