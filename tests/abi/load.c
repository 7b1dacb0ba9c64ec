/* load.c - opens a policy library as a host would and checks its door: load FILE [NAME KIND]...
 *
 * Written against the C headers alone, so it also shows what a host in another language needs. */
#include <moorage/module.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int answers(const moorage_descriptor *policy, const char *kind) {
    for (uint32_t i = 0; i < policy->kind_count; ++i)
        if (strcmp(policy->plugin_kinds[i], kind) == 0) return 1;
    return 0;
}

int main(int count, char **words) {
    void *library = count > 1 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return fprintf(stderr, "cannot load: %s\n", count > 1 ? dlerror() : "no file"), 1;
    moorage_module_function door;
    *(void **)&door = dlsym(library, MOORAGE_MODULE_SYMBOL);
    const moorage_module *module = door ? door() : NULL;
    if (!module || module->size < sizeof(moorage_module) || module->abi_major != MOORAGE_ABI_MAJOR)
        return fprintf(stderr, "%s: no door of this ABI\n", words[1]), 1;
    if (module->descriptor(module->descriptor_count))
        return fprintf(stderr, "%s: a descriptor beyond the last\n", words[1]), 1;
    for (int i = 2; i + 1 < count; i += 2) {
        int found = 0;
        for (uint32_t k = 0; k < module->descriptor_count; ++k) {
            const moorage_descriptor *policy = module->descriptor(k);
            found |= strcmp(policy->plugin_name, words[i]) == 0 && answers(policy, words[i + 1]);
        }
        if (!found) return fprintf(stderr, "no %s for %s\n", words[i], words[i + 1]), 1;
    }
    printf("%s %s: %u policies\n", module->plugin_id, module->plugin_version,
           module->descriptor_count);
    return 0;
}
