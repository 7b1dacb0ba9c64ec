// registry_config.cpp - reads section [registry].
#include "core/config/registry_config.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/config/run_keys.h"

namespace moorage::core {

namespace {

// Checks that https:// has the files it needs, and that files are given only with https://.
void check_files(section_reader &from, const registry_config &of) {
    const bool secure = std::ranges::any_of(
        of.endpoints, [](const std::string &one) { return one.starts_with("https://"); });
    if (secure && of.authority.empty())
        from.fail(
            format("{}: endpoints with https:// need ca, the file of the authority that "
                   "vouches for etcd",
                   of.place));
    if (!secure && of.directory.empty() &&
        !(of.authority.empty() && of.certificate.empty() && of.key.empty()))
        from.fail(
            format("{}: certificate, key and ca are for endpoints with https:// before "
                   "them; put it there, or leave the files out",
                   of.place));
    if (of.certificate.empty() != of.key.empty())
        from.fail(format("{}: certificate and key go together; give both or neither", of.place));
}

}  // namespace

void read_registry(section_reader &from, registry_config &out) {
    if (from.values().empty()) return;
    out.place = from.values().front().place;
    const given *const directory = from.find("directory"), *const endpoints =
                                                               from.find("endpoints");
    if (directory && endpoints && directory->raw.has_value() == endpoints->raw.has_value())
        from.fail(format("{}: [registry] has both directory and endpoints; keep one of them",
                         endpoints->place));
    // If both are given, that of --set wins.
    const bool by_endpoints = endpoints && (!directory || endpoints->raw);
    if (by_endpoints)
        from.read("endpoints", out.endpoints);
    else
        from.read("directory", out.directory);
    from.read_rows(registry_rows, out);
    check_files(from, out);
}

}  // namespace moorage::core
