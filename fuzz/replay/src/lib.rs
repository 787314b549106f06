//! Stands in for the fuzzer's crate, so that each fuzz target is a function that a test can call.
//!
//! Owns: the macro by which a target names its body.
//!
//! Invariants: bytes become a target's input exactly as under the fuzzer, so that a seed means the
//! same in both.
//!
//! Must not know: any target.

pub use arbitrary;

/// Makes a function `replay(&[u8])` of a fuzz target.
#[macro_export]
macro_rules! fuzz_target {
    (|$bytes:ident: &[u8]| $body:expr) => {
        pub(crate) fn replay($bytes: &[u8]) {
            $body
        }
    };
    (|$input:ident: $kind:ty| $body:expr) => {
        pub(crate) fn replay(bytes: &[u8]) {
            use $crate::arbitrary::{Arbitrary, Unstructured};
            // The fuzzer skips bytes that make no input.
            if let Ok($input) = <$kind as Arbitrary>::arbitrary_take_rest(Unstructured::new(bytes))
            {
                $body
            }
        }
    };
}
