pub mod arrivals;
pub mod chance;
pub mod lengths;
