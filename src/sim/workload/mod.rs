pub mod chance;
