// plan_record.cpp - writes JSON, and reads JSON from anybody who can write to the registry.
#include "core/node/plan_record.h"

#include <algorithm>
#include <optional>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/base/visible.h"
#include "core/node/json_fields.h"

namespace moorage::core {

namespace {

constexpr const char *plan_format = "moorage.plan/1", *member_format = "moorage.member/1";
constexpr int depth_max = 8;

bool too_deep(std::string_view text) {
    int depth = 0, deepest = 0;
    for (const char one : text) {
        depth += one == '[' || one == '{' ? 1 : one == ']' || one == '}' ? -1 : 0;
        deepest = std::max(deepest, depth);
    }
    return deepest > depth_max;
}

result<json> read_object(std::string_view text, const char *format_name, const char *what) {
    json read = too_deep(text) ? json(json::value_t::discarded) : json_or_discarded(text);
    if (!read.is_object()) return error{format("{} is no JSON", what)};
    const auto at = read.find("format");
    if (at == read.end() || !at->is_string() || *at != format_name)
        return error{
            format("{} is not of format {}; give all nodes one version", what, format_name)};
    return read;
}

// A whole number below `end`.
std::optional<uint32_t> index_of(const json &of, uint64_t end) {
    if (!of.is_number_unsigned()) return std::nullopt;
    const auto value = of.get<uint64_t>();
    if (value >= end) return std::nullopt;
    return static_cast<uint32_t>(value);
}

std::string hexadecimal(uint64_t of) { return format("{:016x}", of); }

error wrong(std::string text) { return {"the registry's plan " + std::move(text)}; }

status check_whose(const json &of, const node_plan &plan) {
    for (const auto &[key, ours] : {std::pair{"cluster", plan.cluster}, {"model", plan.model}})
        if (text_at(of, key) != hexadecimal(ours))
            return wrong(
                format("is of {} {}, and this node's is {}; give each cluster a registry "
                       "(or [registry] prefix) of its own",
                       key, visible(text_at(of, key).substr(0, 32)), hexadecimal(ours)));
    if (list_at(of, "holders").size() != plan.pages())
        return wrong(format("has {} experts, and there are {}", list_at(of, "holders").size(),
                            plan.pages()));
    return success();
}

}  // namespace

plan_record record_of(const node_plan &of) {
    plan_record made{of.epoch, {}, {}};
    for (uint32_t page = 0; page < of.pages(); ++page) {
        const auto all = of.holders_of(page);
        made.holders.emplace_back(all.begin(), all.end());
    }
    return made;
}

std::string to_text(const plan_record &plan, const node_plan &of) {
    json servers = json::array(), coming = json::array();
    for (const node_server &one : of.servers) servers.push_back(one.name);
    for (const moving_copy &one : plan.coming)
        coming.push_back({one.page, one.from == no_server ? json() : json(one.from), one.to});
    return json_line({{"format", plan_format},
                      {"cluster", hexadecimal(of.cluster)},
                      {"model", hexadecimal(of.model)},
                      {"servers", servers},
                      {"holders", plan.holders},
                      {"coming", coming}});
}

bool is_of_another(std::string_view text, const node_plan &of) {
    const auto read = read_object(text, plan_format, "a plan");
    if (!read) return false;
    const auto is_fingerprint = [](const std::string &value) {
        return value.size() == 16 && std::ranges::all_of(value, [](char digit) {
                   return (digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f');
               });
    };
    const std::string cluster = text_at(*read, "cluster"), model = text_at(*read, "model");
    return is_fingerprint(cluster) && is_fingerprint(model) &&
           (cluster != hexadecimal(of.cluster) || model != hexadecimal(of.model));
}

result<plan_record> read_plan_record(uint64_t epoch, std::string_view text, const node_plan &of) {
    const auto read = read_object(text, plan_format, "the registry's plan");
    if (!read) return read.failure();
    if (const status its = check_whose(*read, of); !its) return its.failure();
    plan_record made{epoch, {}, {}};
    const uint64_t servers = of.servers.size();
    for (const json &all : list_at(*read, "holders")) {
        std::vector<uint32_t> &holders = made.holders.emplace_back();
        if (all.is_array() && all.size() <= servers)
            for (const json &one : all)
                if (const auto server = index_of(one, servers)) holders.push_back(*server);
        std::ranges::sort(holders);
        if (holders.empty() || holders.size() != all.size() ||
            std::ranges::adjacent_find(holders) != holders.end())
            return wrong(format("names no holders, or some twice, of expert {} of layer {}",
                                (made.holders.size() - 1) % of.sizes.experts,
                                (made.holders.size() - 1) / of.sizes.experts));
    }
    for (const json &one : list_at(*read, "coming")) {
        if (!one.is_array() || one.size() != 3) return wrong("has a copy that is none");
        const auto page = index_of(one[0], of.pages()), to = index_of(one[2], servers);
        const auto from = one[1].is_null() ? std::optional(no_server) : index_of(one[1], servers);
        if (!page || !to || !from) return wrong("sends a copy to or from what is not there");
        made.coming.push_back({*page, *from, *to});
    }
    return made;
}

std::string to_text(const member_record &of) {
    return json_line({{"format", member_format},
                      {"incarnation", of.incarnation},
                      {"epoch", of.epoch},
                      {"arrived", of.arrived},
                      {"leaving", of.leaving},
                      {"pair_ns", of.pair_ns},
                      {"round_trip_ns", of.round_trip_ns},
                      {"bytes_per_s", of.bytes_per_s}});
}

result<member_record> read_member_record(std::string_view text, const node_plan &of) {
    const auto read = read_object(text, member_format, "what a member says");
    if (!read) return read.failure();
    member_record made;
    made.incarnation = number_at(*read, "incarnation");
    made.epoch = number_at(*read, "epoch");
    made.leaving = number_at(*read, "leaving");
    made.pair_ns = number_at(*read, "pair_ns");
    made.bytes_per_s = number_at(*read, "bytes_per_s");
    for (const json &one : list_at(*read, "arrived"))
        if (const auto page = index_of(one, of.pages())) made.arrived.push_back(*page);
    for (const json &one : list_at(*read, "round_trip_ns"))
        if (made.round_trip_ns.size() < of.servers.size())
            made.round_trip_ns.push_back(one.is_number_unsigned() ? one.get<uint64_t>() : 0);
    made.round_trip_ns.resize(of.servers.size(), 0);
    return made;
}

}  // namespace moorage::core
