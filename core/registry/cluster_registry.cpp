// cluster_registry.cpp - what all registries take for names and texts.
#include "core/registry/cluster_registry.h"

#include <algorithm>
#include <charconv>

#include "core/base/text.h"

namespace moorage::core {

bool is_registry_name(const std::string &name) {
    const auto fits = [](char one) {
        return (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') ||
               (one >= '0' && one <= '9') || one == '.' || one == '_' || one == '-';
    };
    return !name.empty() && name.size() <= cluster_registry::name_bytes_max &&
           name.front() != '.' && std::ranges::all_of(name, fits);
}

status check_registry_text(const std::string &what, const std::string &text) {
    if (text.size() <= cluster_registry::text_bytes_max) return success();
    return error{
        format("{} has {} bytes, and a registry takes {}; serve fewer experts in one "
               "cluster",
               what, text.size(), cluster_registry::text_bytes_max)};
}

std::string with_epoch(uint64_t epoch, const std::string &text) {
    return format("{}\n{}", epoch, text);
}

bool split_epoch(const std::string &whole, uint64_t &epoch, std::string &text) {
    const size_t line = whole.find('\n');
    if (line == std::string::npos || line == 0) return false;
    uint64_t read = 0;
    const auto [end, wrong] = std::from_chars(whole.data(), whole.data() + line, read);
    if (wrong != std::errc() || end != whole.data() + line || read == 0) return false;
    epoch = read;
    text = whole.substr(line + 1);
    return text.size() <= cluster_registry::text_bytes_max;
}

}  // namespace moorage::core
