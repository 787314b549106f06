//! Encoding of metric families for Prometheus.
//!
//! Invariants: a family is encoded with exactly the labels that it declares.
//!
//! Must not know: what is counted.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;

use super::families::{Family, Kind};
use crate::metrics::recorder::durations::Durations;

/// Largest number up to which `f64` represents every integer.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Values of a row's labels.
pub(super) type Values<'v> = Vec<&'v str>;

pub(super) struct FamilyEncoder<'e>(pub(super) DescriptorEncoder<'e>);

impl FamilyEncoder<'_> {
    /// Encodes a family without labels.
    pub(super) fn one(&mut self, family: &Family, value: f64) -> fmt::Result {
        self.rows(family, [(Vec::new(), value)])
    }

    /// Encodes a family with one row for each combination of labels.
    pub(super) fn rows<'v>(
        &mut self,
        family: &Family,
        rows: impl IntoIterator<Item = (Values<'v>, f64)>,
    ) -> fmt::Result {
        self.each(family, rows, |encoder, value| match family.kind {
            Kind::Counter => {
                encoder.encode_counter::<[(&str, &str); 0], _, f64>(&(*value as u64), None)
            }
            _ if value.fract() == 0.0 && value.abs() < MAX_WHOLE => {
                encoder.encode_gauge(&(*value as i64))
            }
            _ => encoder.encode_gauge(value),
        })
    }

    /// Encodes a family of distributions.
    pub(super) fn histograms<'v>(
        &mut self,
        family: &Family,
        rows: impl IntoIterator<Item = (Values<'v>, &'v Durations)>,
    ) -> fmt::Result {
        self.each(family, rows, |encoder, durations| durations.encode_buckets(encoder))
    }

    fn each<'v, V>(
        &mut self,
        family: &Family,
        rows: impl IntoIterator<Item = (Values<'v>, V)>,
        mut value: impl FnMut(&mut MetricEncoder<'_>, &V) -> fmt::Result,
    ) -> fmt::Result {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let kind = match family.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        let mut encoder = self.0.encode_descriptor(family.name, family.help, None, kind)?;
        for (values, of) in rows {
            match labels(family, &values).as_slice() {
                [] => value(&mut encoder, &of)?,
                labels => value(&mut encoder.encode_family(&labels)?, &of)?,
            }
        }
        Ok(())
    }
}

fn labels<'v>(family: &Family, values: &[&'v str]) -> Vec<(&'static str, &'v str)> {
    debug_assert_eq!(family.labels.len(), values.len(), "{}", family.name);
    family.labels.iter().copied().zip(values.iter().copied()).collect()
}
