//! The model of a model server.
