//! Results on their way to the caller: in any order, or in the order of the input.

pub(crate) mod finished_item;
pub(crate) mod held_results;
pub(crate) mod result_order;
