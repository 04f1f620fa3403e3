//! What the tests of this room share.

#[path = "../../../benches/support/vllm_page.rs"]
mod vllm_page;

pub(super) use vllm_page::vllm_page;
