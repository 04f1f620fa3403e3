//! Flags that are on or off, as the reference and its Go have them: alone they are on, and a value stands behind an equals
//! sign (`--flag`, `--flag=false`).

use clap::{Arg, ArgAction};

/// Makes a flag a switch. In a derived command: `#[arg(long, switch = false)]`.
pub(super) trait Switch {
    /// The flag as a switch, with the value that it has where it is not given.
    fn switch(self, default: bool) -> Self;
}

impl Switch for Arg {
    fn switch(self, default: bool) -> Self {
        self.action(ArgAction::Set)
            .value_parser(value)
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .default_value(if default { "true" } else { "false" })
    }
}

/// Reads the value of a switch in any of the spellings that the reference takes.
pub(super) fn value(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("`{text}` is neither `true` nor `false`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_spelt_in_several_ways() {
        assert_eq!(["true", "1", "T", "True"].map(value), [(); 4].map(|()| Ok(true)));
        assert_eq!(["false", "0", "f", "FALSE"].map(value), [(); 4].map(|()| Ok(false)));
        assert_eq!(value("maybe").unwrap_err(), "`maybe` is neither `true` nor `false`");
    }
}
