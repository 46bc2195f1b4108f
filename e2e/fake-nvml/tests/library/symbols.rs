//! The library exports what a full MIG emulator needs (list in `rust-ecosystem.md` 3), and every function of it
//! survives being called with nothing.

use std::collections::BTreeSet;

use nvidia_ml::control;

use crate::node::Node;

/// Functions that are not on the call path, so that nothing can be set for them.
const OUTSIDE: [&str; 2] = ["nvmlShutdown", "nvmlErrorString"];

#[test]
fn about_110_functions_are_exported() {
    let node = Node::new("H100-80GB", 1);
    let names: BTreeSet<&str> = control::functions().into_iter().chain(OUTSIDE).collect();
    assert!(names.len() >= 110, "{}", names.len());
    for name in names {
        let symbol = format!("{name}\0");
        // SAFETY: the symbol is looked up, not called.
        let found = unsafe {
            node.nvml
                .lib()
                .__library
                .get::<unsafe extern "C" fn()>(symbol.as_bytes())
        };
        assert!(found.is_ok(), "{name}");
    }
}

#[test]
fn every_function_refuses_nulls_and_goes_on() {
    let node = Node::new("H100-80GB", 1);
    for name in control::functions() {
        let symbol = format!("{name}\0");
        // SAFETY: the library takes at most six arguments of word size, all null here, which its contract allows;
        // on this platform surplus arguments are ignored.
        let code = unsafe {
            type Any = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> u32;
            let function = node.nvml.lib().__library.get::<Any>(symbol.as_bytes()).unwrap();
            function(0, 0, 0, 0, 0, 0)
        };
        let init = name.starts_with("nvmlInit");
        assert_eq!(code == 0, init, "{name} answers {code} to nulls");
        assert!(init || matches!(code, 2 | 6), "{name} answers {code} to nulls");
    }
    assert_eq!(node.nvml.device_count().unwrap(), 1);
}
