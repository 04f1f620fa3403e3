//! Outlier detection: when endpoints are ejected that fail requests.

use std::time::Duration;

use super::super::super::pool::health::OutlierDetection;
use super::super::document::{self, Span};
use super::super::report::Report;

/// What the section says. What is wrong in it is reported, and stands at its default.
pub(super) fn planned(section: &document::OutlierDetection, report: &mut Report) -> OutlierDetection {
    let usual = OutlierDetection::default();
    let consecutive_failures = number(
        section.consecutive_failures,
        "consecutiveFailures",
        u32::MAX,
        usual.consecutive_failures,
        report,
    );
    let max_ejection_percent = number(
        section.max_ejection_percent,
        "maxEjectionPercent",
        100,
        usual.max_ejection_percent,
        report,
    );
    let base = span(section.base_ejection_time.as_ref(), "baseEjectionTime", report);
    let base_ejection_time = base.unwrap_or(usual.base_ejection_time);
    let max = span(section.max_ejection_time.as_ref(), "maxEjectionTime", report);
    if let Some(max) = max
        && max < base_ejection_time
    {
        report.error(
            "outlierDetection.maxEjectionTime",
            format!("maxEjectionTime is {max:?}, which is below baseEjectionTime, {base_ejection_time:?}"),
        );
    }
    let off = [
        ("consecutiveFailures", consecutive_failures),
        ("maxEjectionPercent", max_ejection_percent),
    ];
    if let Some((field, _)) = off.into_iter().find(|(_, value)| *value == 0)
        && let Some(other) = first_other(section, field)
    {
        report.warning(
            &format!("outlierDetection.{other}"),
            format!("it has no effect: with `{field}: 0` no endpoint is ejected"),
        );
    }
    OutlierDetection {
        consecutive_failures,
        base_ejection_time,
        max_ejection_time: max.unwrap_or(usual.max_ejection_time.max(base_ejection_time)),
        max_ejection_percent,
    }
}

/// The first field that is given beside `field`.
fn first_other(section: &document::OutlierDetection, field: &str) -> Option<&'static str> {
    let given = [
        ("consecutiveFailures", section.consecutive_failures.is_some()),
        ("baseEjectionTime", section.base_ejection_time.is_some()),
        ("maxEjectionTime", section.max_ejection_time.is_some()),
        ("maxEjectionPercent", section.max_ejection_percent.is_some()),
    ];
    let other = given.into_iter().find(|(name, given)| *given && *name != field);
    other.map(|(name, _)| name)
}

fn number(given: Option<i64>, field: &str, most: u32, usual: u32, report: &mut Report) -> u32 {
    let Some(given) = given else { return usual };
    match u32::try_from(given) {
        Ok(number) if number <= most => number,
        _ => {
            let message = format!("{field} must be between 0 and {most}, but got {given}");
            report.error(&format!("outlierDetection.{field}"), message);
            usual
        }
    }
}

fn span(given: Option<&Span>, field: &str, report: &mut Report) -> Option<Duration> {
    let found = match given? {
        Span::Of(Duration::ZERO) => "0".to_owned(),
        Span::Of(span) => return Some(*span),
        Span::Negative(text) => text.clone(),
    };
    let message = format!("{field} must be above 0, but got {found}; to eject nothing, write `consecutiveFailures: 0`");
    report.error(&format!("outlierDetection.{field}"), message);
    None
}

#[cfg(test)]
mod tests {
    use super::super::super::super::pool::health::OutlierDetection;
    use super::super::super::{LoadOptions, SourceName, load};
    use super::*;

    /// What `section` comes to, or everything that is wrong with it.
    fn read(section: &str) -> Result<(OutlierDetection, Vec<String>), String> {
        let text = format!("{{plugins: [{{type: queue-scorer}}], outlierDetection: {section}}}");
        let loaded = load(&text, &SourceName::Flag, &LoadOptions::default()).map_err(|errors| errors.to_string())?;
        let warnings = loaded.warnings.iter().map(ToString::to_string).collect();
        Ok((loaded.plan.engine.outliers, warnings))
    }

    #[test]
    fn what_is_left_out_is_as_in_envoy_but_for_the_share() {
        let (outliers, warnings) = read("{}").unwrap();

        assert_eq!(outliers, OutlierDetection::default());
        assert_eq!((outliers.consecutive_failures, outliers.max_ejection_percent), (5, 50));
        assert_eq!(outliers.base_ejection_time, Duration::from_secs(30));
        assert_eq!(outliers.max_ejection_time, Duration::from_secs(300));
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn every_field_counts_and_a_long_first_ejection_lengthens_the_longest() {
        let (outliers, _) = read("{consecutiveFailures: 2, baseEjectionTime: 10m, maxEjectionPercent: 100}").unwrap();

        let ten_minutes = Duration::from_secs(600);
        let expected = OutlierDetection {
            consecutive_failures: 2,
            base_ejection_time: ten_minutes,
            max_ejection_time: ten_minutes,
            max_ejection_percent: 100,
        };
        assert_eq!(outliers, expected);
    }

    #[test]
    fn all_that_is_out_of_range_is_told_at_once() {
        let errors =
            read("{consecutiveFailures: -1, baseEjectionTime: 0s, maxEjectionTime: -1s, maxEjectionPercent: 101}");

        let errors = errors.unwrap_err();
        for part in [
            "consecutiveFailures must be between 0 and 4294967295, but got -1",
            "baseEjectionTime must be above 0, but got 0",
            "maxEjectionTime must be above 0, but got -1s",
            "maxEjectionPercent must be between 0 and 100, but got 101",
        ] {
            assert!(errors.contains(part), "{part}: {errors}");
        }
        let errors = read("{maxEjectionTime: 10s}").unwrap_err();
        assert!(
            errors.contains("maxEjectionTime is 10s, which is below baseEjectionTime, 30s"),
            "{errors}"
        );
    }

    #[test]
    fn settings_of_what_is_switched_off_are_warned_of() {
        let (outliers, warnings) = read("{consecutiveFailures: 0, baseEjectionTime: 5s}").unwrap();

        assert_eq!(outliers.consecutive_failures, 0);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].contains("outlierDetection.baseEjectionTime"),
            "{warnings:?}"
        );
        assert_eq!(read("{consecutiveFailures: 0}").unwrap().1.len(), 0);
    }
}
