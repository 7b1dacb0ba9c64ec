// cluster_registry.cpp - the checks of names and texts that all registries share.
#include "tools/registry/cluster_registry.h"

#include <algorithm>
#include <charconv>

#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/base/visible.h"

namespace moorage::core {

bool is_registry_name(const std::string &name) {
    const auto fits = [](char character) {
        return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
               (character >= '0' && character <= '9') || character == '.' || character == '_' ||
               character == '-';
    };
    return !name.empty() && name.size() <= cluster_registry::name_bytes_max &&
           name.front() != '.' && std::ranges::all_of(name, fits);
}

status check_registry_text(const std::string &subject, const std::string &text) {
    if (text.size() <= cluster_registry::text_bytes_max) return success();
    return error{
        format("{} has {} bytes, and a registry takes {}; serve fewer experts in one "
               "cluster",
               subject, text.size(), cluster_registry::text_bytes_max)};
}

std::string with_epoch(uint64_t epoch, const std::string &text) {
    return format("{}\n{}", epoch, text);
}

bool split_epoch(const std::string &stored_text, uint64_t &epoch, std::string &text) {
    const size_t line = stored_text.find('\n');
    if (line == std::string::npos || line == 0) return false;
    uint64_t read = 0;
    const auto [end, code] = std::from_chars(stored_text.data(), stored_text.data() + line, read);
    if (code != std::errc() || end != stored_text.data() + line) return false;
    if (read == 0 || read > cluster_registry::epoch_max) return false;
    epoch = read;
    text = stored_text.substr(line + 1);
    return text.size() <= cluster_registry::text_bytes_max;
}

cluster_registry::plan_seen cluster_registry::check_stored_plan(const std::string &place,
                                                                const std::string &stored_text,
                                                                bool is_member) {
    plan_seen seen;
    const auto damaged = [&](const std::string &reason) {
        seen.epoch = 0;
        seen.text.clear();
        seen.damaged = format("registry: {} is damaged: {}", place, reason);
        return seen;
    };
    if (!split_epoch(stored_text, seen.epoch, seen.text))
        return damaged(
            format("{} in place of an epoch of 1 to {}, a line's end and at most {} "
                   "bytes",
                   visible(printable(stored_text.substr(0, stored_text.find('\n')))), epoch_max,
                   text_bytes_max));
    if (judge_ && judged_text_ != stored_text) {
        opinion_ = judge_(seen.epoch, seen.text);
        judged_text_ = stored_text;
    }
    if (judge_ && opinion_.verdict != plan_opinion::worth::good) {
        seen.of_other_cluster = opinion_.verdict == plan_opinion::worth::of_other_cluster;
        return damaged(opinion_.reason);
    }
    const bool known = state_.epoch != 0;
    if (known && seen.epoch > state_.epoch + epoch_step_max)
        return damaged(
            format("epoch {} is far beyond {}, which is in force; at most {} more is "
                   "believed",
                   seen.epoch, state_.epoch, epoch_step_max));
    if (known && is_member && seen.epoch < state_.epoch)
        return damaged(
            format("epoch {} is older than {}, which is in force", seen.epoch, state_.epoch));
    if (known && is_member && seen.epoch == state_.epoch && seen.text != state_.plan)
        return damaged(format("another plan of epoch {} is in force; give this one a later epoch",
                              seen.epoch));
    return seen;
}

}  // namespace moorage::core
