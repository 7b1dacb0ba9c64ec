// layout.rs - prints the layout that the Rust bindings have, in the format of sdk/abi/layout_2_1.txt.
//
// LAYOUT_LIST names a file made from layout_list.h by rust_layout.cmake: layout! { ... }.
#![recursion_limit = "1024"]

#[allow(dead_code, unused_macros, non_camel_case_types)]
#[macro_use]
mod moorage {
    include!(concat!(env!("MOORAGE_SDK"), "/rust/moorage.rs"));
}
use moorage::*;

fn size_of_target<T>(_: *const T) -> usize {
    std::mem::size_of::<T>()
}

fn plain(name: &str) -> &str {
    name.strip_prefix("r#").unwrap_or(name)
}

macro_rules! layout {
    () => {};
    (STRUCT($type:ident) $(FIELD($field:ident))* END $($rest:tt)*) => {
        println!("struct {} {}", stringify!($type), std::mem::size_of::<$type>());
        $({
            let memory = std::mem::MaybeUninit::<$type>::uninit();
            let start = memory.as_ptr();
            let field = unsafe { std::ptr::addr_of!((*start).$field) };
            let name = plain(stringify!($field));
            println!("  {} {} {}", field as usize - start as usize, size_of_target(field), name);
        })*
        layout! { $($rest)* }
    };
    (CONSTANT($name:ident) $($rest:tt)*) => {
        // As C converts it for printing: sign-extended to 64 bits.
        println!("constant {} {}", stringify!($name), $name as u64);
        layout! { $($rest)* }
    };
    (ID($name:ident) $($rest:tt)*) => {
        println!("id {} {}", stringify!($name), $name.trim_end_matches('\0'));
        layout! { $($rest)* }
    };
}

fn main() {
    include!(env!("LAYOUT_LIST"));
}
