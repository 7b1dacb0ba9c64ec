// registry_config.cpp - reads section [registry].
#include "core/config/registry_config.h"

#include "core/base/text.h"

namespace moorage::core {

void read_registry(section_reader &from, const std::filesystem::path &base, registry_config &out) {
    if (from.values().empty()) return;
    out.place = from.values().front().place;
    const given *const directory = from.find("directory"), *const endpoints =
                                                               from.find("endpoints");
    if (directory && endpoints && directory->raw.has_value() == endpoints->raw.has_value())
        from.fail(format("{}: [registry] has both directory and endpoints; keep one of them",
                         endpoints->place));
    // Of the two the one that --set gives.
    const bool by_endpoints = endpoints && (!directory || endpoints->raw);
    std::string path;
    if (!by_endpoints) from.read("directory", path);
    if (!path.empty())
        out.directory =
            (directory->raw ? std::filesystem::path(path) : base / path).lexically_normal();
    if (by_endpoints) from.read_texts("endpoints", out.endpoints);
    from.read("prefix", out.prefix);
}

}  // namespace moorage::core
