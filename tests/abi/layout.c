/* layout.c - writes the ABI's layout as C11 sees it.
 *
 * sdk.cmake compares it with sdk/abi/layout_2_1.txt and with the Rust bindings. */
#include "layout_rows.h"

int main(void) { return write_layout(stdout) == 0 ? 0 : 1; }
