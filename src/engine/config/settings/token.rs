//! How prompts become tokens.

use serde::Deserialize;
use serde_json::Value;

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::Producer;

/// Estimates tokens from bytes: four bytes of text are one (spec, scheduling 9.1).
#[derive(Clone, Debug, PartialEq)]
pub struct TokenProducer {
    /// How media are counted.
    pub estimate: TokenEstimate,
}

/// How many tokens media have.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TokenEstimate {
    /// Images.
    pub image: ImageEstimate,
    /// Videos.
    pub video: VideoEstimate,
}

/// How many tokens an image has.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ImageEstimate {
    /// Whether the size of the image counts. Default: dynamic.
    pub mode: SizeMode,
    /// Size of an image whose size is not known.
    pub default_resolution: Resolution,
    /// Settings of the static mode.
    #[serde(rename = "static")]
    pub fixed: StaticImage,
    /// Settings of the dynamic mode.
    pub dynamic: PixelsPerToken,
}

/// Whether size counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SizeMode {
    /// It does.
    #[default]
    Dynamic,
    /// All count the same.
    Static,
}

/// Pixels of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Resolution {
    /// From left to right. Default: 640.
    pub width: u32,
    /// From top to bottom. Default: 360.
    pub height: u32,
}

impl Default for Resolution {
    fn default() -> Self {
        Self {
            width: 640,
            height: 360,
        }
    }
}

/// Settings of images that all count the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StaticImage {
    /// Tokens of an image. Default: 1.
    pub static_token: u32,
}

impl Default for StaticImage {
    fn default() -> Self {
        Self { static_token: 1 }
    }
}

/// Settings of pictures that count by their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PixelsPerToken {
    /// Pixels of a token. Default: 1024.
    pub factor: u32,
}

impl Default for PixelsPerToken {
    fn default() -> Self {
        Self { factor: 1024 }
    }
}

/// How many tokens a video has.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VideoEstimate {
    /// Size of a video whose size is not known.
    pub default_resolution: Resolution,
    /// Length of a video whose length is not known, in seconds. Default: 10.
    pub default_duration: f64,
    /// Tokens of one frame.
    pub tokens_per_frame: FrameTokens,
    /// Frames that count.
    pub frames: Frames,
    /// The most tokens of a video. Default: 0, for any number.
    pub max_video_tokens: u32,
}

impl Default for VideoEstimate {
    fn default() -> Self {
        Self {
            default_resolution: Resolution::default(),
            default_duration: 10.0,
            tokens_per_frame: FrameTokens::default(),
            frames: Frames::default(),
            max_video_tokens: 0,
        }
    }
}

/// Tokens of one frame.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FrameTokens {
    /// Whether the size of the frame counts. Default: dynamic.
    pub mode: SizeMode,
    /// Settings of the dynamic mode.
    pub dynamic: PixelsPerToken,
    /// Settings of the static mode.
    #[serde(rename = "static")]
    pub fixed: StaticFrame,
}

/// Settings of frames that all count the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StaticFrame {
    /// Tokens of a frame. Default: 1.
    pub num_tokens_per_frame: u32,
}

impl Default for StaticFrame {
    fn default() -> Self {
        Self {
            num_tokens_per_frame: 1,
        }
    }
}

/// Frames of a video that count.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Frames {
    /// How frames are chosen. Default: sampled.
    pub mode: FrameMode,
    /// Settings of the sampled mode.
    pub sampled: SampledFrames,
    /// Settings of the strided mode.
    pub strided: StridedFrames,
    /// At least so many.
    pub min_frames: u32,
    /// At most so many. Default: 0, for any number.
    pub max_frames: u32,
}

/// How frames are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameMode {
    /// So many in a second.
    #[default]
    Sampled,
    /// Every so many.
    Strided,
}

/// Settings of frames at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SampledFrames {
    /// Frames a second. Default: 2.
    #[serde(rename = "sampleFPS")]
    pub sample_fps: f64,
    /// Frames that become one. Default: 0, for none.
    pub temporal_patch_size: u32,
}

impl Default for SampledFrames {
    fn default() -> Self {
        Self {
            sample_fps: 2.0,
            temporal_patch_size: 0,
        }
    }
}

/// Settings of frames at a stride.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StridedFrames {
    /// Rate of a video whose rate is not known. Default: 24.
    #[serde(rename = "defaultSourceFPS")]
    pub default_source_fps: f64,
    /// Frames from one that counts to the next. Default: 1.
    pub frame_stride: u32,
}

impl Default for StridedFrames {
    fn default() -> Self {
        Self {
            default_source_fps: 24.0,
            frame_stride: 1,
        }
    }
}

/// What the user may write.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Params {
    model_name: String,
    vllm: Option<Value>,
    estimate: Option<TokenEstimate>,
    uds_tokenizer_config: Option<Value>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("only one of 'estimate', 'vllm', or 'udsTokenizerConfig' may be set")]
    Several,
    #[error("'modelName' must be specified with `{0}`")]
    NoModel(&'static str),
}

impl Plugin for TokenProducer {
    const TYPE: &'static str = "token-producer";
    const SUMMARY: &'static str = "makes tokens of prompts, by estimate: four bytes of text are one";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "estimate",
            default: "null",
            summary: "how media are counted: `{image: {mode, defaultResolution, static, dynamic}, video: \
                      {defaultResolution, defaultDuration, tokensPerFrame, frames, maxVideoTokens}}`",
        },
        Parameter {
            name: "modelName",
            default: "\"\"",
            summary: "model of an external renderer; accepted, without effect",
        },
        Parameter {
            name: "vllm",
            default: "null",
            summary: "an external renderer; accepted, without effect: tokens are estimated from bytes",
        },
        Parameter {
            name: "udsTokenizerConfig",
            default: "null",
            summary: "an external renderer; accepted, without effect: tokens are estimated from bytes",
        },
    ];
    type Params = Params;
    type Error = Error;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Error> {
        let vllm = match (&params.vllm, params.model_name.as_str()) {
            (Some(_), _) => Some("vllm"),
            (None, "") => None,
            (None, _) => Some("modelName"),
        };
        let socket = params.uds_tokenizer_config.as_ref().map(|_| "udsTokenizerConfig");
        let backends = [
            params.estimate.as_ref().map(|_| "estimate"),
            params.vllm.as_ref().map(|_| "vllm"),
            socket,
        ];
        if backends.iter().flatten().count() > 1 || (params.estimate.is_some() && vllm.is_some()) {
            return Err(Error::Several);
        }
        if let Some(backend) = socket.or(vllm) {
            if params.model_name.is_empty() {
                return Err(Error::NoModel(backend));
            }
            let message = format!(
                "`{backend}` has no effect: this version does not ask an external renderer, and estimates tokens from bytes"
            );
            needs.remark(backend, message);
        }
        Ok(Self {
            estimate: params.estimate.unwrap_or_default(),
        })
    }
}

impl From<TokenProducer> for Producer {
    fn from(producer: TokenProducer) -> Self {
        Self::Token(producer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::super::plugin::instance;
    use super::*;

    fn made(params: &Value) -> Result<TokenProducer, String> {
        instance(Some(params), &mut Needs::default()).map_err(|error| error.message)
    }

    #[test]
    fn estimates_are_read_in_all_their_parts() {
        let params = json!({"estimate": {
            "image": {"mode": "static", "static": {"staticToken": 256}, "defaultResolution": {"width": 1, "height": 2}},
            "video": {"tokensPerFrame": {"mode": "dynamic", "dynamic": {"factor": 9}}, "maxVideoTokens": 5,
                "frames": {"mode": "strided", "strided": {"frameStride": 3, "defaultSourceFPS": 30}, "minFrames": 1}},
        }});

        let estimate = made(&params).unwrap().estimate;

        assert_eq!(estimate.image.fixed.static_token, 256);
        assert_eq!(estimate.video.frames.strided.frame_stride, 3);
        assert_eq!(made(&json!({})).unwrap().estimate, TokenEstimate::default());
    }

    #[test]
    fn what_a_renderer_needs_is_checked_though_none_is_asked() {
        let refusal = |params| made(&params).unwrap_err();

        assert_eq!(
            refusal(json!({"vllm": {}})),
            "'modelName' must be specified with `vllm`"
        );
        assert!(refusal(json!({"modelName": "m", "estimate": {}})).starts_with("only one of 'estimate'"));
        let rendered = made(&json!({"modelName": "m", "vllm": {"url": "http://x"}}));
        assert_eq!(rendered.unwrap().estimate, TokenEstimate::default());
    }
}
