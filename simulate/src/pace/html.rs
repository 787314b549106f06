//! x
use super::report::PaceReport;
/// x
pub fn pace_html(_r: &[PaceReport]) -> String {
    String::new()
}
