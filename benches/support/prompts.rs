//! Requests with prompts that have something in common.

use forebay::engine::prefix::{BlockHasher, BlockLayout};
use forebay::engine::request::{Kind, Request};

/// Requests with prompts of so many bytes. The first half of the prompt is the same in all of them, as a system
/// prompt is; the second half is the conversation's own.
pub(crate) fn requests(count: u32, prompt_bytes: usize) -> Vec<Request> {
    let request = |number: u32| {
        let mut hasher = BlockHasher::new("llama", "", BlockLayout::default());
        hasher.text("Be brief. ".repeat(prompt_bytes / 20).as_bytes());
        hasher.text(format!("{number:10}").repeat(prompt_bytes / 20).as_bytes());
        hasher.end_prompt();
        let (prompt_tokens, prompt_blocks) = hasher.finish();
        Request {
            model: "llama".into(),
            target_model: "llama".into(),
            prompt_tokens,
            prompt_blocks,
            size_bytes: prompt_bytes as u64,
            ..Request::unknown(Kind::Inference)
        }
    };
    (0..count).map(request).collect()
}
