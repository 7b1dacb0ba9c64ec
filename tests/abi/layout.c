/* layout.c - writes the ABI's layout as C11 sees it: `layout` the stable part, `layout draft` more.
 *
 * sdk.cmake compares the first with sdk/abi/layout_1_0.txt and the Rust bindings with both. */
#include "layout_rows.h"

int main(int count, char **words) {
    (void)words;
    return (count > 1 ? write_layout_draft(stdout) : write_layout(stdout)) == 0 ? 0 : 1;
}
