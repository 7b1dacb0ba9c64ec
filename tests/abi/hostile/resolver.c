/* resolver.c - a library whose door is chosen by a function that dies (IFUNC): the loader runs it
 * when the symbol is asked for. */
#include <moorage/module.h>

typedef const moorage_module *(*door_function)(void);
static volatile int *volatile nowhere;
static const moorage_module *door(void) { return 0; }
static door_function choose(void) {
    *nowhere = 1;
    return door;
}
__attribute__((visibility("default"))) const moorage_module *moorage_module_v2(void)
    __attribute__((ifunc("choose")));
