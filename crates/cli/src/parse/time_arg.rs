//! Times on the command line: a point in time, a day, or an age. The HTTP API reads the same.

pub(crate) use fetchwise_serve::attempt_filter::{TimeArg, parse_time_arg};
