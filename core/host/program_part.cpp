// program_part.cpp - opens a part's library and compares the builds.
#include "core/host/program_part.h"

#include <dlfcn.h>

#include "core/base/text.h"
#include "core/host/registry.h"

namespace moorage::core {

result<void (*)()> open_program_part(std::string_view file) {
    const std::filesystem::path folder = registry::bundled_folder();
    if (folder.empty())
        return error{
            format("{}: no folder plugins/ is beside the program that /proc/self/exe is; "
                   "install the program whole",
                   file)};
    const std::filesystem::path path = folder / file;
    void *const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = ::dlerror();
        return error{format("{}: this part of the program cannot be opened: {}", path.string(),
                            reason ? reason : "no reason is given")};
    }
    const auto *part = static_cast<const program_part *>(::dlsym(library, "moorage_program_part"));
    if (!part || !part->build_id)
        return error{
            format("{}: is no part of this program: it exports no moorage_program_part; "
                   "install the program whole",
                   path.string())};
    if (part->build_id != program_build_id)
        return error{
            format("{}: belongs to another build of the program: {}, and this one is {}; "
                   "install both from one package",
                   path.string(), part->build_id, program_build_id)};
    return part->entry;
}

}  // namespace moorage::core
