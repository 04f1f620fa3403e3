//! When each piece of each answer came.

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use super::data::{RowError, unreadable};

/// When one piece of an answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ItlRow {
    /// The request's number in the trace.
    pub request_id: u64,
    /// The piece, from zero.
    pub chunk_index: u32,
    /// When it came, in microseconds.
    pub timestamp_us: u64,
}

/// Reads a file of such times.
///
/// # Errors
///
/// The first thing that is wrong, with its line.
pub fn read_itl(from: impl Read, file: &str) -> Result<Vec<ItlRow>, RowError> {
    let mut reader = csv::Reader::from_reader(from);
    reader
        .deserialize()
        .map(|row| row.map_err(|error| unreadable(&error, file)))
        .collect()
}

/// Writes such times.
///
/// # Errors
///
/// If `to` cannot be written to.
pub fn write_itl(to: impl Write, rows: &[ItlRow]) -> std::io::Result<()> {
    let mut writer = csv::Writer::from_writer(to);
    if rows.is_empty() {
        writer.write_record(["request_id", "chunk_index", "timestamp_us"])?;
    }
    for row in rows {
        writer.serialize(row).map_err(std::io::Error::other)?;
    }
    writer.flush()
}
