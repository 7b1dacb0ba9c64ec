/* no_door.c - no policy library: opening it ends the process. */
#include <stdlib.h>

__attribute__((constructor)) static void begin(void) { abort(); }
__attribute__((visibility("default"))) int something_else(void);
int something_else(void) { return 1; }
