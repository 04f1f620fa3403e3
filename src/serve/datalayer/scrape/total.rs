//! One number of a page, for who needs no signals of endpoints.

use super::names::Names;
use super::series::Series;

/// The sum over all series of the first of `names` that is on `page`. None if the page has none of them.
pub fn total(page: &[u8], names: &[&str]) -> Option<f64> {
    let known = Names::new(names.iter().copied());
    let mut sums = vec![None; names.len()];
    for line in page.split(|&byte| byte == b'\n') {
        let Some((number, rest)) = known.split(line) else {
            continue;
        };
        if let Some(series) = Series::parse(rest).filter(|series| series.value.is_finite()) {
            *sums[number].get_or_insert(0.0) += series.value;
        }
    }
    names
        .iter()
        .find_map(|name| known.position(name).and_then(|number| sums[number]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &[u8] = b"# TYPE hits_total counter\nhits_total{engine=\"0\"} 3\nhits_total{engine=\"1\"} 4\nhits 9\n\
        hits_total_created 5\nhits_total broken\n";

    #[test]
    fn series_of_all_engines_are_added_up() {
        assert_eq!(total(PAGE, &["hits_total"]), Some(7.0));
    }

    #[test]
    fn of_several_names_the_first_that_is_there_counts() {
        assert_eq!(total(PAGE, &["newer_hits", "hits", "hits_total"]), Some(9.0));
        assert_eq!(total(PAGE, &["misses"]), None);
    }
}
