//! Results on their way to the caller: in any order, or in the order of the input.

pub mod finished_item;
pub mod held_results;
pub mod result_order;
