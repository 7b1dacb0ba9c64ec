// registry_config.cpp - reads section [registry].
#include "core/config/registry_config.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/config/run_keys.h"

namespace moorage::core {

namespace {

// Checks that https:// has the files it needs, and that files are given only with https://.
void check_files(section_reader &section, const registry_config &registry) {
    const bool secure = std::ranges::any_of(registry.endpoints, [](const std::string &endpoint) {
        return endpoint.starts_with("https://");
    });
    if (secure && registry.authority.empty())
        section.fail(
            format("{}: endpoints with https:// need ca, the file of the authority that "
                   "vouches for etcd",
                   registry.place));
    if (!secure && registry.directory.empty() &&
        !(registry.authority.empty() && registry.certificate.empty() && registry.key.empty()))
        section.fail(
            format("{}: certificate, key and ca are for endpoints with https:// before "
                   "them; put it there, or leave the files out",
                   registry.place));
    if (registry.certificate.empty() != registry.key.empty())
        section.fail(
            format("{}: certificate and key go together; give both or neither", registry.place));
}

}  // namespace

void read_registry(section_reader &section, registry_config &registry) {
    if (section.values().empty()) return;
    registry.place = section.values().front().place;
    const config_value *const directory = section.find("directory"), *const endpoints =
                                                                         section.find("endpoints");
    if (directory && endpoints && directory->raw.has_value() == endpoints->raw.has_value())
        section.fail(format("{}: [registry] has both directory and endpoints; keep one of them",
                            endpoints->place));
    // If both are given, that of --set wins.
    const bool by_endpoints = endpoints && (!directory || endpoints->raw);
    if (by_endpoints)
        section.read("endpoints", registry.endpoints);
    else
        section.read("directory", registry.directory);
    section.read_rows(registry_rows, registry);
    check_files(section, registry);
}

}  // namespace moorage::core
