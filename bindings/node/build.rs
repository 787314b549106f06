//! Has the linker leave the symbols open that the process of Node brings.

fn main() {
    napi_build::setup();
}
