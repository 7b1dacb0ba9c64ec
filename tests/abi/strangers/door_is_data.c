/* door_is_data.c - has a variable of the door's name: opening it ends the process. */
#include <stdlib.h>

__attribute__((constructor)) static void begin(void) { abort(); }
__attribute__((visibility("default"))) int moorage_module_v2 = 1;
