//! The whole service, seen from outside.

mod protocol;
mod support;
