//! The worker as a program of its own, for tests; elsewhere it is the one binary, started by another name.

fn main() {
    std::process::exit(belljar_wasm::main());
}
