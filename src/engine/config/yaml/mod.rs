//! YAML and JSON text as values, with the line of each.
//!
//! One reader for everything that people write: YAML 1.2 with the core schema (`8000` is a number, `"8000"` and `yes`
//! are text), of which JSON is a part. [`parse`] reads the first document of a stream, [`parse_all`] every one; lines count
//! from the start of the text in each. Keys must be scalars, and different within a mapping. Nesting and the copies that
//! aliases make are bounded.

mod place;
mod scalar;
#[cfg(test)]
mod tests;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, StrInput, Tag};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use place::Positions;
use place::{Inner, Place};

/// The deepest nesting of sequences and mappings.
pub const MAX_DEPTH: usize = 128;

/// What all anchors and aliases of a text may copy together, in bytes of text plus one for each value.
pub const MAX_COPIED: usize = 1 << 20;

/// Why text is not a YAML document that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// It is not YAML.
    #[error("line {line}, column {column}: {reason}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 1, in characters.
        column: usize,
        /// What the scanner says.
        reason: String,
    },
    /// A mapping has a key twice.
    #[error("line {line}: key `{key}` is already there on line {first}; a key can be given once")]
    DuplicateKey {
        /// Line of the second one.
        line: usize,
        /// The key.
        key: String,
        /// Line of the first one.
        first: usize,
    },
    /// A key is a sequence, a mapping or an alias.
    #[error("line {line}: a key is not plain text; write it as a word or in quotes")]
    KeyIsNoText {
        /// Line of the key.
        line: usize,
    },
    /// A scalar cannot be what it is written as.
    #[error("line {line}: {reason}")]
    Scalar {
        /// Line of the scalar.
        line: usize,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("line {line}: nested deeper than {MAX_DEPTH} levels")]
    TooDeep {
        /// Line at which the limit is passed.
        line: usize,
    },
    /// Anchors and aliases copy more than [`MAX_COPIED`].
    #[error("line {line}: anchors and aliases copy more than {MAX_COPIED} bytes; write the values out")]
    TooMuchCopied {
        /// Line at which the limit is passed.
        line: usize,
    },
    /// An alias stands within the value that it names.
    #[error("line {line}: the alias stands within the value that it names")]
    EndlessAlias {
        /// Line of the alias.
        line: usize,
    },
    /// An alias names an anchor of another document.
    #[error("line {line}: the alias names a value of another document; write the value out")]
    ForeignAlias {
        /// Line of the alias.
        line: usize,
    },
}

impl YamlError {
    /// The line to look at, from 1.
    pub fn line(&self) -> usize {
        match self {
            Self::Syntax { line, .. }
            | Self::DuplicateKey { line, .. }
            | Self::KeyIsNoText { line }
            | Self::Scalar { line, .. }
            | Self::TooDeep { line }
            | Self::TooMuchCopied { line }
            | Self::EndlessAlias { line }
            | Self::ForeignAlias { line } => *line,
        }
    }
}

/// A field that does not fit what is read from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {}{message}", field_prefix(path))]
pub struct FieldError {
    /// Line of the field, or of the nearest thing around it that is there; from 1.
    pub line: usize,
    /// Path of the field, such as `plugins[2].parameters.x`. Empty for the document itself.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

/// Why text does not give the value that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The text cannot be read at all.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// A field does not fit.
    #[error(transparent)]
    Field(#[from] FieldError),
}

impl DecodeError {
    /// The line to look at, from 1.
    pub fn line(&self) -> usize {
        match self {
            Self::Yaml(error) => error.line(),
            Self::Field(error) => error.line,
        }
    }
}

/// Reads the first document of `text`. Text without any is `null`.
///
/// # Errors
///
/// See [`YamlError`].
pub fn parse(text: &str) -> Result<(Value, Positions), YamlError> {
    let mut documents = Documents::of(text);
    let first = documents.next()?;
    // Nothing but another document, marked as one, may follow.
    if let Some(Err(error)) = documents.events.next_event() {
        return Err(syntax(&error));
    }
    Ok(first.unwrap_or_else(|| (Value::Null, Positions::new(Place::scalar(1)))))
}

/// The line at which a second document of `text` begins, if what is before it can be read.
pub fn second_document(text: &str) -> Option<usize> {
    let mut documents = Documents::of(text);
    documents.next().ok()??;
    while let Some(Ok((event, span))) = documents.events.next_event() {
        if matches!(event, Event::DocumentStart(_)) {
            return Some(span.start.line());
        }
    }
    None
}

/// Reads every document of `text`, in order. One that is empty is `null`; text without any has none.
///
/// # Errors
///
/// See [`YamlError`]; one document that is wrong is an error for all.
pub fn parse_all(text: &str) -> Result<Vec<(Value, Positions)>, YamlError> {
    let mut documents = Documents::of(text);
    let mut all = Vec::new();
    while let Some(document) = documents.next()? {
        all.push(document);
    }
    Ok(all)
}

/// Reads the first document of `text` as a `T`.
///
/// # Errors
///
/// See [`DecodeError`]; both kinds name the line.
pub fn decode<T: DeserializeOwned>(text: &str) -> Result<T, DecodeError> {
    let (value, positions) = parse(text)?;
    Ok(decode_at(value, &positions, "")?)
}

/// Reads `value`, which stands at the path `base` of a document, as a `T`.
///
/// # Errors
///
/// Names the line and the whole path of the first field that does not fit.
pub fn decode_at<T: DeserializeOwned>(value: Value, positions: &Positions, base: &str) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = join(base, &error.path().to_string());
        FieldError {
            line: positions.line(&path),
            path,
            message: error.into_inner().to_string(),
        }
    })
}

/// The documents of a text, read one by one.
struct Documents<'t> {
    events: Parser<'t, StrInput<'t>>,
    /// Serves all of them: the parser numbers anchors through the whole text.
    builder: Builder,
}

impl<'t> Documents<'t> {
    fn of(text: &'t str) -> Self {
        Self {
            events: Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text)),
            builder: Builder::default(),
        }
    }

    fn next(&mut self) -> Result<Option<(Value, Positions)>, YamlError> {
        while let Some(event) = self.events.next_event() {
            let (event, span) = event.map_err(|error| syntax(&error))?;
            if matches!(event, Event::DocumentEnd) {
                let (value, root) = self.builder.root.take().expect("a document has a value");
                return Ok(Some((value, Positions::new(root))));
            }
            self.builder.take(event, span.start.line())?;
        }
        Ok(None)
    }
}

/// Builds a value and the places of its parts from the events of the parser.
#[derive(Debug, Default)]
struct Builder {
    open: Vec<Open>,
    /// Complete anchored values by the parser's number.
    anchors: Vec<Option<(Value, Place)>>,
    /// The first number that an anchor of this document can have.
    first_anchor: usize,
    copied: usize,
    root: Option<(Value, Place)>,
}

/// A collection whose end was not seen yet.
#[derive(Debug)]
struct Open {
    line: usize,
    anchor: usize,
    items: Items,
}

#[derive(Debug)]
enum Items {
    Sequence(Vec<Value>, Vec<Place>),
    Mapping {
        values: Map<String, Value>,
        places: Vec<(String, Place)>,
        key: Option<(String, usize)>,
    },
}

impl Builder {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), YamlError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if self.awaits_key() {
                    return self.key(&text, anchor, line);
                }
                let value = resolve(&text, style, tag.as_deref(), line)?;
                self.complete(value, Place::scalar(line), anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                collection_tag(tag.as_deref(), "seq", line)?;
                self.begin(Items::Sequence(Vec::new(), Vec::new()), anchor, line)
            }
            Event::MappingStart(anchor, tag) => {
                collection_tag(tag.as_deref(), "map", line)?;
                let items = Items::Mapping {
                    values: Map::new(),
                    places: Vec::new(),
                    key: None,
                };
                self.begin(items, anchor, line)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Open { line, anchor, items } = self.open.pop().expect("the parser ends what it began");
                let (value, inner) = match items {
                    Items::Sequence(values, places) => (Value::Array(values), Inner::Sequence(places)),
                    Items::Mapping { values, places, .. } => (Value::Object(values), Inner::Mapping(places)),
                };
                self.complete(value, Place { line, inner }, anchor)
            }
            Event::Alias(anchor) => self.alias(anchor, line),
            Event::DocumentStart(_) => {
                self.first_anchor = self.anchors.len();
                Ok(())
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
        }
    }

    fn awaits_key(&self) -> bool {
        matches!(
            self.open.last(),
            Some(Open {
                items: Items::Mapping { key: None, .. },
                ..
            })
        )
    }

    fn key(&mut self, text: &str, anchor: usize, line: usize) -> Result<(), YamlError> {
        if anchor != 0 {
            return Err(YamlError::KeyIsNoText { line });
        }
        if let Some(Open {
            items: Items::Mapping { values, places, key },
            ..
        }) = self.open.last_mut()
        {
            if values.contains_key(text) {
                let first = places
                    .iter()
                    .find(|(known, _)| known == text)
                    .map_or(line, |(_, place)| place.line);
                return Err(YamlError::DuplicateKey {
                    line,
                    key: text.to_owned(),
                    first,
                });
            }
            *key = Some((text.to_owned(), line));
        }
        Ok(())
    }

    fn begin(&mut self, items: Items, anchor: usize, line: usize) -> Result<(), YamlError> {
        if self.awaits_key() {
            return Err(YamlError::KeyIsNoText { line });
        }
        if self.open.len() == MAX_DEPTH {
            return Err(YamlError::TooDeep { line });
        }
        self.open.push(Open { line, anchor, items });
        Ok(())
    }

    fn alias(&mut self, anchor: usize, line: usize) -> Result<(), YamlError> {
        if self.awaits_key() {
            return Err(YamlError::KeyIsNoText { line });
        }
        if anchor < self.first_anchor {
            return Err(YamlError::ForeignAlias { line });
        }
        let Some(Some((value, place))) = self.anchors.get(anchor) else {
            return Err(YamlError::EndlessAlias { line });
        };
        let size = Size::of(value);
        if self.open.len() + size.depth > MAX_DEPTH {
            return Err(YamlError::TooDeep { line });
        }
        charge(&mut self.copied, size, line)?;
        let (value, place) = (value.clone(), place.clone());
        self.complete(value, place, 0)
    }

    /// Puts a complete value where it belongs: into the innermost open collection, or at the root.
    fn complete(&mut self, value: Value, mut place: Place, anchor: usize) -> Result<(), YamlError> {
        if anchor != 0 {
            charge(&mut self.copied, Size::of(&value), place.line)?;
            if self.anchors.len() <= anchor {
                self.anchors.resize(anchor + 1, None);
            }
            self.anchors[anchor] = Some((value.clone(), place.clone()));
        }
        match self.open.last_mut().map(|open| &mut open.items) {
            None => self.root = Some((value, place)),
            Some(Items::Sequence(values, places)) => {
                values.push(value);
                places.push(place);
            }
            Some(Items::Mapping { values, places, key }) => {
                let (key, line) = key.take().expect("a value comes after its key");
                place.line = line;
                values.insert(key.clone(), value);
                places.push((key, place));
            }
        }
        Ok(())
    }
}

/// What a copy of a value costs.
#[derive(Clone, Copy)]
struct Size {
    /// One for each value, plus the bytes of its text.
    weight: usize,
    /// Collections within each other.
    depth: usize,
}

impl Size {
    fn of(value: &Value) -> Self {
        let around = |size: Self, (key, value): (&str, &Value)| {
            let part = Self::of(value);
            Self {
                weight: size.weight + key.len() + part.weight,
                depth: size.depth.max(part.depth + 1),
            }
        };
        let empty = Self { weight: 1, depth: 1 };
        match value {
            Value::Array(values) => values.iter().map(|value| ("", value)).fold(empty, around),
            Value::Object(values) => values
                .iter()
                .map(|(key, value)| (key.as_str(), value))
                .fold(empty, around),
            Value::String(text) => Self {
                weight: 1 + text.len(),
                depth: 0,
            },
            Value::Null | Value::Bool(_) | Value::Number(_) => Self { weight: 1, depth: 0 },
        }
    }
}

fn charge(copied: &mut usize, size: Size, line: usize) -> Result<(), YamlError> {
    *copied += size.weight;
    if *copied > MAX_COPIED {
        return Err(YamlError::TooMuchCopied { line });
    }
    Ok(())
}

fn resolve(text: &str, style: ScalarStyle, tag: Option<&Tag>, line: usize) -> Result<Value, YamlError> {
    scalar::resolve(text, style, tag).map_err(|reason| YamlError::Scalar { line, reason })
}

/// Refuses a tag that makes a collection something else.
fn collection_tag(tag: Option<&Tag>, plain: &str, line: usize) -> Result<(), YamlError> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == plain) => Err(YamlError::Scalar {
            line,
            reason: scalar::unknown_tag(tag),
        }),
        _ => Ok(()),
    }
}

fn syntax(error: &ScanError) -> YamlError {
    YamlError::Syntax {
        line: error.marker().line(),
        column: error.marker().col() + 1,
        reason: error.info().to_owned(),
    }
}

fn field_prefix(path: &str) -> String {
    if path.is_empty() {
        return String::new();
    }
    format!("field `{path}`: ")
}

/// The path `relative` below the path `base`.
fn join(base: &str, relative: &str) -> String {
    match (base, relative) {
        (_, "." | "") => base.to_owned(),
        ("", _) => relative.to_owned(),
        _ if relative.starts_with('[') => format!("{base}{relative}"),
        _ => format!("{base}.{relative}"),
    }
}
