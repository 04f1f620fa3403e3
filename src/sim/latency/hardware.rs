//! GPUs and their figures.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::Error;
use crate::engine::config::suggest;

/// A GPU, as far as time and memory depend on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// What it is called.
    pub name: String,
    /// Its figures.
    pub(super) figures: Figures,
}

/// The figures of a GPU. The aliases are the names of BLIS, whose `hardware_config.json` can so be used; other fields
/// are ignored, as those files have many.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(expecting = "the figures of a GPU")]
pub(super) struct Figures {
    /// Peak of 16-bit arithmetic, in TFLOP/s.
    #[serde(alias = "TFlopsPeak")]
    pub(super) tflops: f64,
    /// Peak of 8-bit floating-point arithmetic, in TFLOP/s, if it has any.
    #[serde(alias = "TFlopsFP8", default)]
    pub(super) tflops_fp8: Option<f64>,
    /// Bandwidth of its memory, in TB/s.
    #[serde(alias = "BwPeakTBs")]
    pub(super) tb_per_second: f64,
    /// The share of the peak that prefill reaches, above 0 and up to 1.
    #[serde(alias = "mfuPrefill")]
    pub(super) mfu_prefill: f64,
    /// The share of the peak that decode reaches, above 0 and up to 1.
    #[serde(alias = "mfuDecode")]
    pub(super) mfu_decode: f64,
    /// Its memory, in GiB.
    #[serde(alias = "MemoryGiB")]
    pub(super) gib: f64,
}

const A100: Figures = Figures {
    tflops: 312.0,
    tflops_fp8: None,
    tb_per_second: 2.039,
    mfu_prefill: 0.38,
    mfu_decode: 0.18,
    gib: 80.0,
};

/// The bundled GPUs (spec, simulator 17.2).
const TABLE: &[(&str, Figures)] = &[
    (
        "H100",
        Figures {
            tflops: 989.5,
            tflops_fp8: Some(1979.0),
            tb_per_second: 3.35,
            mfu_prefill: 0.45,
            mfu_decode: 0.30,
            gib: 80.0,
        },
    ),
    ("A100-SXM", A100),
    ("A100-80", A100),
    (
        "L40S",
        Figures {
            tflops: 362.05,
            tflops_fp8: Some(1466.0),
            tb_per_second: 0.864,
            mfu_prefill: 0.32,
            mfu_decode: 0.08,
            gib: 48.0,
        },
    ),
];

impl Hardware {
    /// The GPU of that name, in any case: of the user's `rows` if it is there, else a bundled one.
    ///
    /// `rows` is JSON, name to figures: `{"H200": {"tflops": 989.5, "tflops_fp8": 1979, "tb_per_second": 4.8,
    /// "mfu_prefill": 0.45, "mfu_decode": 0.3, "gib": 141}}`. Only `tflops_fp8` may be missing.
    ///
    /// # Errors
    ///
    /// If the rows cannot be read, no GPU has that name, or its figures make no sense.
    pub fn named(name: &str, rows: Option<&str>) -> Result<Self, Error> {
        let rows: BTreeMap<String, Figures> = match rows {
            None => BTreeMap::new(),
            Some(text) => serde_json::from_str(text).map_err(|error| Error::HardwareRows(error.to_string()))?,
        };
        let known = || {
            let own = rows.iter().map(|(known, figures)| (known.as_str(), figures));
            own.chain(TABLE.iter().map(|(known, figures)| (*known, figures)))
        };
        let (name, figures) = known()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .ok_or_else(|| Error::Unknown {
                what: "hardware",
                name: name.to_owned(),
                known: suggest::or_known(name, "known GPUs", known().map(|(known, _)| known)),
            })?;
        figures.check(name)?;
        Ok(Self {
            name: name.to_owned(),
            figures: *figures,
        })
    }

    /// Memory of one GPU, in GiB.
    pub fn gib(&self) -> f64 {
        self.figures.gib
    }
}

impl Figures {
    fn check(&self, name: &str) -> Result<(), Error> {
        let amounts = [
            ("tflops", Some(self.tflops), f64::MAX),
            ("tflops_fp8", self.tflops_fp8.filter(|&flops| flops != 0.0), f64::MAX),
            ("tb_per_second", Some(self.tb_per_second), f64::MAX),
            ("mfu_prefill", Some(self.mfu_prefill), 1.0),
            ("mfu_decode", Some(self.mfu_decode), 1.0),
            ("gib", Some(self.gib), f64::MAX),
        ];
        for (field, value, most) in amounts {
            if let Some(value) = value.filter(|value| !(*value > 0.0 && *value <= most)) {
                return Err(Error::HardwareFigure {
                    name: name.to_owned(),
                    field,
                    value,
                    wanted: if most == 1.0 {
                        "a number above 0 and up to 1"
                    } else {
                        "a number above 0"
                    },
                });
            }
        }
        Ok(())
    }

    /// Peak in FLOP a microsecond for weights of `weight_bytes` each: that of 8-bit arithmetic if they have exactly one
    /// byte and the GPU has it.
    pub(super) fn flops_per_microsecond(&self, weight_bytes: f64) -> f64 {
        let fp8 = self.tflops_fp8.filter(|&flops| weight_bytes == 1.0 && flops > 0.0);
        fp8.unwrap_or(self.tflops) * 1e6
    }

    /// Bandwidth in bytes a microsecond.
    pub(super) fn bytes_per_microsecond(&self) -> f64 {
        self.tb_per_second * 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: &str = r#"{"H200": {"tflops": 989.5, "tflops_fp8": 1979, "tb_per_second": 4.8, "mfu_prefill": 0.45,
        "mfu_decode": 0.3, "gib": 141}}"#;

    #[test]
    fn every_bundled_gpu_has_figures_that_make_sense() {
        for (name, _) in TABLE {
            assert_eq!(Hardware::named(name, None).expect("it is bundled").name, *name);
        }
    }

    #[test]
    fn a_users_gpu_is_known_beside_the_bundled_ones_and_wins_over_them() {
        let other = r#"{"h100": {"TFlopsPeak": 1, "BwPeakTBs": 2, "mfuPrefill": 0.5, "mfuDecode": 0.5, "MemoryGiB": 3,
            "perLayerOverhead": 20}}"#;

        assert_eq!(Hardware::named("h200", Some(H200)).expect("it is given").gib(), 141.0);
        assert_eq!(Hardware::named("H100", Some(H200)).expect("it is bundled").gib(), 80.0);
        assert_eq!(Hardware::named("H100", Some(other)).expect("it is given").gib(), 3.0);
    }

    #[test]
    fn wrong_hardware_is_refused_by_name() {
        fn message(name: &str, rows: Option<&str>) -> String {
            Hardware::named(name, rows).expect_err("it is wrong").to_string()
        }
        let without_memory = r#"{"X": {"tflops": 1, "tb_per_second": 1, "mfu_prefill": 1, "mfu_decode": 1}}"#;

        assert_eq!(
            message("H10", None),
            "unknown hardware `H10`: did you mean `H100`? known GPUs: `H100`, `A100-SXM`, `A100-80`, `L40S`"
        );
        assert_eq!(
            message("H200", Some(&H200.replace("4.8", "0"))),
            "hardware `H200`: `tb_per_second` is 0, expected a number above 0"
        );
        assert_eq!(
            message("H200", Some(&H200.replace("0.45", "45"))),
            "hardware `H200`: `mfu_prefill` is 45, expected a number above 0 and up to 1"
        );
        assert!(message("X", Some(without_memory)).contains("missing field `gib`"));
    }

    #[test]
    fn the_peak_of_8_bit_arithmetic_is_for_weights_of_one_byte_where_there_is_one() {
        let peak = |name, weight_bytes| {
            let figures = Hardware::named(name, None).expect("it is bundled").figures;
            figures.flops_per_microsecond(weight_bytes)
        };

        assert_eq!(peak("H100", 1.0), 1979e6);
        assert_eq!(peak("H100", 0.5), 989.5e6);
        assert_eq!(peak("A100-80", 1.0), 312e6);
    }
}
