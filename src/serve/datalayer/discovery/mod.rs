//! Endpoints that a file lists.
