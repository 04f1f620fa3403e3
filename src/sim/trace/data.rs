//! The requests of a trace as CSV.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{Read, Write};
use std::str::FromStr;

use csv::{ReaderBuilder, StringRecord};

use super::super::workload::lengths::MOST_TOKENS;
use super::row::{Row, Status};

/// The columns that every file has, in the order in which they are written; and those that are written only if some row
/// needs them, each where it stands.
const COLUMNS: [(&str, bool); 33] = [
    ("request_id", true),
    ("client_id", true),
    ("tenant_id", true),
    ("slo_class", true),
    ("vllm_priority", false),
    ("session_id", true),
    ("round_index", true),
    ("prefix_group", true),
    ("prefix_length", true),
    ("streaming", true),
    ("input_tokens", true),
    ("output_tokens", true),
    ("text_tokens", true),
    ("image_tokens", true),
    ("audio_tokens", true),
    ("video_tokens", true),
    ("reason_ratio", true),
    ("model", true),
    ("deadline_us", true),
    ("slo_target_us", false),
    ("server_input_tokens", true),
    ("arrival_time_us", true),
    ("send_time_us", true),
    ("first_chunk_time_us", true),
    ("last_chunk_time_us", true),
    ("num_chunks", true),
    ("status", true),
    ("error_message", true),
    ("finish_reason", true),
    ("x_request_id", false),
    ("adapter", false),
    ("think_time_us", false),
    ("context_tokens", false),
];

/// Why a file of a trace cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// It is not CSV, or cannot be read.
    #[error("{file}:{line}: {reason}")]
    Csv {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// A column is not there.
    #[error("{file}:1: column `{column}` is missing; the first line must name the columns")]
    Column {
        /// The file.
        file: String,
        /// The column.
        column: &'static str,
    },
    /// There are columns, and no request.
    #[error("{file}:1: no request follows the names of the columns")]
    Empty {
        /// The file.
        file: String,
    },
    /// A value cannot be what it is written as, or is another line's already.
    #[error("{file}:{line}: column `{column}` is `{found}`; {expected}")]
    Value {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The column.
        column: &'static str,
        /// What stands there.
        found: String,
        /// What would be right.
        expected: String,
    },
}

/// Reads the requests of a trace. Columns are known by their names; those that are not known are passed over.
///
/// # Errors
///
/// The first thing that is wrong, with line and column. A file without a request, and a number that two requests have, are
/// wrong, too.
pub fn read_rows(from: impl Read, file: &str) -> Result<Vec<Row>, RowError> {
    let mut reader = ReaderBuilder::new().from_reader(from);
    let names = reader.headers().map_err(|error| unreadable(&error, file))?.clone();
    let mut places = [None; COLUMNS.len()];
    for (place, (column, required)) in places.iter_mut().zip(COLUMNS) {
        *place = names.iter().position(|name| name.trim() == column);
        if place.is_none() && required {
            let file = file.to_owned();
            return Err(RowError::Column { file, column });
        }
    }
    let mut rows = Vec::new();
    let mut lines = BTreeMap::new();
    let mut record = StringRecord::new();
    while reader
        .read_record(&mut record)
        .map_err(|error| unreadable(&error, file))?
    {
        let line = record.position().map_or(0, csv::Position::line);
        let fields = Fields {
            file,
            line,
            record: &record,
            places: &places,
        };
        let row = fields.row()?;
        if let Some(earlier) = lines.insert(row.request_id, line) {
            let expected = format!("line {earlier} has that number already");
            return Err(fields.wrong("request_id", expected));
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return Err(RowError::Empty { file: file.to_owned() });
    }
    Ok(rows)
}

pub(super) fn unreadable(error: &csv::Error, file: &str) -> RowError {
    let line = error.position().map_or(1, csv::Position::line);
    let reason = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("has {len} fields, the lines before it {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "is not UTF-8".to_owned(),
        _ => error.to_string(),
    };
    RowError::Csv {
        file: file.to_owned(),
        line,
        reason,
    }
}

/// One line of the file.
struct Fields<'r> {
    file: &'r str,
    line: u64,
    record: &'r StringRecord,
    places: &'r [Option<usize>; COLUMNS.len()],
}

impl Fields<'_> {
    fn row(&self) -> Result<Row, RowError> {
        let row = Row {
            request_id: self.number("request_id")?,
            client_id: self.text("client_id"),
            tenant_id: self.text("tenant_id"),
            slo_class: self.text("slo_class"),
            vllm_priority: self.optional("vllm_priority", "it must be a whole number")?,
            session_id: self.text("session_id"),
            round_index: self.number("round_index")?,
            prefix_group: self.text("prefix_group"),
            prefix_length: self.tokens("prefix_length")?,
            streaming: self.parsed("streaming", "it must be `true` or `false`")?,
            input_tokens: self.tokens("input_tokens")?,
            output_tokens: self.tokens("output_tokens")?,
            text_tokens: self.tokens("text_tokens")?,
            image_tokens: self.tokens("image_tokens")?,
            audio_tokens: self.tokens("audio_tokens")?,
            video_tokens: self.tokens("video_tokens")?,
            reason_ratio: self.parsed("reason_ratio", "it must be a number from 0 to 1")?,
            model: self.text("model"),
            deadline_us: self.number("deadline_us")?,
            slo_target_us: self.optional("slo_target_us", WHOLE)?.filter(|&target| target > 0),
            server_input_tokens: self.tokens("server_input_tokens")?,
            arrival_time_us: self.number("arrival_time_us")?,
            send_time_us: self.number("send_time_us")?,
            first_chunk_time_us: self.number("first_chunk_time_us")?,
            last_chunk_time_us: self.number("last_chunk_time_us")?,
            num_chunks: self.number("num_chunks")?,
            status: self.status()?,
            error_message: self.text("error_message"),
            finish_reason: self.text("finish_reason"),
            x_request_id: self.text("x_request_id"),
            adapter: self.text("adapter"),
            think_time_us: self.optional("think_time_us", WHOLE)?,
            context_tokens: self.optional_tokens("context_tokens")?,
        };
        if !(0.0..=1.0).contains(&row.reason_ratio) {
            return Err(self.wrong("reason_ratio", "it must be a number from 0 to 1"));
        }
        if row.deadline_us > 0 && row.deadline_us < row.arrival_time_us {
            let arrival = row.arrival_time_us;
            let expected = format!("it must not lie before the arrival, which is {arrival}; 0 is for none");
            return Err(self.wrong("deadline_us", expected));
        }
        if row.prefix_length > 0 && row.prefix_group.is_empty() {
            return Err(self.wrong("prefix_length", "without `prefix_group` it must be 0"));
        }
        Ok(row)
    }

    fn get(&self, column: &str) -> &str {
        let at = COLUMNS.iter().position(|(name, _)| *name == column);
        let place = at.and_then(|at| self.places[at]);
        place.and_then(|place| self.record.get(place)).unwrap_or_default()
    }

    fn text(&self, column: &str) -> Box<str> {
        self.get(column).into()
    }

    fn number<T: FromStr>(&self, column: &'static str) -> Result<T, RowError> {
        self.parsed(column, WHOLE)
    }

    fn tokens(&self, column: &'static str) -> Result<u32, RowError> {
        let tokens = self.get(column).trim().parse().ok();
        tokens
            .filter(|&tokens| tokens <= MOST_TOKENS)
            .ok_or_else(|| self.wrong(column, format!("it must be a whole number from 0 to {MOST_TOKENS}")))
    }

    /// None if the column is not there, or empty.
    fn optional_tokens(&self, column: &'static str) -> Result<Option<u32>, RowError> {
        if self.get(column).trim().is_empty() {
            return Ok(None);
        }
        self.tokens(column).map(Some)
    }

    fn parsed<T: FromStr>(&self, column: &'static str, expected: &str) -> Result<T, RowError> {
        let parsed = self.get(column).trim().parse();
        parsed.map_err(|_| self.wrong(column, expected))
    }

    /// None if the column is not there, or empty.
    fn optional<T: FromStr>(&self, column: &'static str, expected: &str) -> Result<Option<T>, RowError> {
        if self.get(column).trim().is_empty() {
            return Ok(None);
        }
        self.parsed(column, expected).map(Some)
    }

    fn status(&self) -> Result<Status, RowError> {
        let found = self.get("status").trim();
        let status = Status::ALL.into_iter().find(|status| status.name() == found);
        status.ok_or_else(|| self.wrong("status", "it must be `ok`, `timeout`, `error` or `incomplete`"))
    }

    fn wrong(&self, column: &'static str, expected: impl Into<String>) -> RowError {
        RowError::Value {
            file: self.file.to_owned(),
            line: self.line,
            column,
            found: self.get(column).to_owned(),
            expected: expected.into(),
        }
    }
}

const WHOLE: &str = "it must be a whole number, not negative";

/// Writes the requests of a trace.
///
/// # Errors
///
/// If `to` cannot be written to.
pub fn write_rows(to: impl Write, rows: &[Row]) -> std::io::Result<()> {
    let needed = |column: &str| match column {
        "vllm_priority" => rows.iter().any(|row| row.vllm_priority.is_some()),
        "slo_target_us" => rows.iter().any(|row| row.slo_target_us.is_some()),
        "x_request_id" => rows.iter().any(|row| !row.x_request_id.is_empty()),
        "adapter" => rows.iter().any(|row| !row.adapter.is_empty()),
        "think_time_us" => rows.iter().any(|row| row.think_time_us.is_some()),
        _ => rows.iter().any(|row| row.context_tokens.is_some()),
    };
    let columns = COLUMNS.iter().filter(|(column, required)| *required || needed(column));
    let columns: Vec<&str> = columns.map(|(column, _)| *column).collect();
    let mut writer = csv::Writer::from_writer(to);
    writer.write_record(&columns)?;
    let mut text = String::new();
    for row in rows {
        for column in &columns {
            text.clear();
            put(row, column, &mut text);
            writer.write_field(&text)?;
        }
        writer.write_record(None::<&[u8]>)?;
    }
    writer.flush()
}

/// Appends what `row` has in a column.
fn put(row: &Row, column: &str, to: &mut String) {
    let mut show = |value: &dyn Display| to.push_str(&value.to_string());
    match column {
        "request_id" => show(&row.request_id),
        "client_id" => show(&row.client_id),
        "tenant_id" => show(&row.tenant_id),
        "slo_class" => show(&row.slo_class),
        "vllm_priority" => row.vllm_priority.iter().for_each(|value| show(value)),
        "session_id" => show(&row.session_id),
        "round_index" => show(&row.round_index),
        "prefix_group" => show(&row.prefix_group),
        "prefix_length" => show(&row.prefix_length),
        "streaming" => show(&row.streaming),
        "input_tokens" => show(&row.input_tokens),
        "output_tokens" => show(&row.output_tokens),
        "text_tokens" => show(&row.text_tokens),
        "image_tokens" => show(&row.image_tokens),
        "audio_tokens" => show(&row.audio_tokens),
        "video_tokens" => show(&row.video_tokens),
        "reason_ratio" => show(&row.reason_ratio),
        "model" => show(&row.model),
        "deadline_us" => show(&row.deadline_us),
        // These columns of the reference are numbers in every row.
        "slo_target_us" => show(&row.slo_target_us.unwrap_or_default()),
        "server_input_tokens" => show(&row.server_input_tokens),
        "arrival_time_us" => show(&row.arrival_time_us),
        "send_time_us" => show(&row.send_time_us),
        "first_chunk_time_us" => show(&row.first_chunk_time_us),
        "last_chunk_time_us" => show(&row.last_chunk_time_us),
        "num_chunks" => show(&row.num_chunks),
        "status" => show(&row.status),
        "error_message" => show(&row.error_message),
        "finish_reason" => show(&row.finish_reason),
        "x_request_id" => show(&row.x_request_id),
        "adapter" => show(&row.adapter),
        "think_time_us" => show(&row.think_time_us.unwrap_or_default()),
        _ => show(&row.context_tokens.unwrap_or_default()),
    }
}
