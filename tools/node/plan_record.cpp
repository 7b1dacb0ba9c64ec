// plan_record.cpp - writes JSON, and reads JSON from anybody who can write to the registry.
#include "tools/node/plan_record.h"

#include <algorithm>
#include <optional>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/base/visible.h"
#include "tools/node/json_fields.h"

namespace moorage::core {

namespace {

constexpr const char *plan_format = "moorage.plan/1", *member_format = "moorage.member/1";
constexpr int depth_max = 8;

bool too_deep(std::string_view text) {
    int depth = 0, deepest = 0;
    for (const char character : text) {
        depth += character == '[' || character == '{'   ? 1
                 : character == ']' || character == '}' ? -1
                                                        : 0;
        deepest = std::max(deepest, depth);
    }
    return deepest > depth_max;
}

result<json> read_object(std::string_view text, const char *format_name, const char *subject) {
    json read = too_deep(text) ? json(json::value_t::discarded) : json_or_discarded(text);
    if (!read.is_object()) return error{format("{} is no JSON", subject)};
    const auto field = read.find("format");
    if (field == read.end() || !field->is_string() || *field != format_name)
        return error{
            format("{} is not of format {}; give all nodes one version", subject, format_name)};
    return read;
}

// A whole number below `end`.
std::optional<uint32_t> index_of(const json &number, uint64_t end) {
    if (!number.is_number_unsigned()) return std::nullopt;
    const auto value = number.get<uint64_t>();
    if (value >= end) return std::nullopt;
    return static_cast<uint32_t>(value);
}

std::string hexadecimal(uint64_t number) { return format("{:016x}", number); }

error plan_error(std::string text) { return {"the registry's plan " + std::move(text)}; }

status check_same_cluster(const json &object, const node_plan &plan) {
    for (const auto &[key, ours] : {std::pair{"cluster", plan.cluster}, {"model", plan.model}})
        if (text_at(object, key) != hexadecimal(ours))
            return plan_error(
                format("is of {} {}, and this node's is {}; give each cluster a registry "
                       "(or [registry] prefix) of its own",
                       key, visible(text_at(object, key).substr(0, 32)), hexadecimal(ours)));
    if (list_at(object, "holders").size() != plan.pages())
        return plan_error(format("has {} experts, and there are {}",
                                 list_at(object, "holders").size(), plan.pages()));
    return success();
}

}  // namespace

plan_record record_of(const node_plan &plan) {
    plan_record record{plan.epoch, {}, {}};
    for (uint32_t page = 0; page < plan.pages(); ++page) {
        const auto holders = plan.holders_of(page);
        record.holders.emplace_back(holders.begin(), holders.end());
    }
    return record;
}

std::string to_text(const plan_record &record, const node_plan &plan) {
    json servers = json::array(), coming = json::array();
    for (const node_server &server : plan.servers) servers.push_back(server.name);
    for (const moving_copy &copy : record.coming)
        coming.push_back(
            {copy.page, copy.source == no_server ? json() : json(copy.source), copy.target});
    return json_line({{"format", plan_format},
                      {"cluster", hexadecimal(plan.cluster)},
                      {"model", hexadecimal(plan.model)},
                      {"servers", servers},
                      {"holders", record.holders},
                      {"coming", coming}});
}

bool is_of_other_cluster(std::string_view text, const node_plan &plan) {
    const auto read = read_object(text, plan_format, "a plan");
    if (!read) return false;
    const auto is_fingerprint = [](const std::string &value) {
        return value.size() == 16 && std::ranges::all_of(value, [](char digit) {
                   return (digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f');
               });
    };
    const std::string cluster = text_at(*read, "cluster"), model = text_at(*read, "model");
    return is_fingerprint(cluster) && is_fingerprint(model) &&
           (cluster != hexadecimal(plan.cluster) || model != hexadecimal(plan.model));
}

result<plan_record> read_plan_record(uint64_t epoch, std::string_view text, const node_plan &plan) {
    const auto read = read_object(text, plan_format, "the registry's plan");
    if (!read) return read.failure();
    if (const status checked = check_same_cluster(*read, plan); !checked) return checked.failure();
    plan_record record{epoch, {}, {}};
    const uint64_t servers = plan.servers.size();
    for (const json &page_holders : list_at(*read, "holders")) {
        std::vector<uint32_t> &holders = record.holders.emplace_back();
        if (page_holders.is_array() && page_holders.size() <= servers)
            for (const json &entry : page_holders)
                if (const auto server = index_of(entry, servers)) holders.push_back(*server);
        std::ranges::sort(holders);
        if (holders.empty() || holders.size() != page_holders.size() ||
            std::ranges::adjacent_find(holders) != holders.end())
            return plan_error(format("names no holders, or some twice, of expert {} of layer {}",
                                     (record.holders.size() - 1) % plan.sizes.experts,
                                     (record.holders.size() - 1) / plan.sizes.experts));
    }
    for (const json &entry : list_at(*read, "coming")) {
        if (!entry.is_array() || entry.size() != 3) return plan_error("has a copy that is none");
        const auto page = index_of(entry[0], plan.pages()), target = index_of(entry[2], servers);
        const auto source =
            entry[1].is_null() ? std::optional(no_server) : index_of(entry[1], servers);
        if (!page || !target || !source)
            return plan_error("sends a copy to or from what is not there");
        record.coming.push_back({*page, *source, *target});
    }
    return record;
}

std::string to_text(const member_record &record) {
    return json_line({{"format", member_format},
                      {"incarnation", record.incarnation},
                      {"epoch", record.epoch},
                      {"arrived", record.arrived},
                      {"leaving", record.leaving},
                      {"pair_ns", record.pair_ns},
                      {"round_trip_ns", record.round_trip_ns},
                      {"bytes_per_s", record.bytes_per_s}});
}

result<member_record> read_member_record(std::string_view text, const node_plan &plan) {
    const auto read = read_object(text, member_format, "what a member says");
    if (!read) return read.failure();
    member_record record;
    record.incarnation = number_at(*read, "incarnation");
    record.epoch = number_at(*read, "epoch");
    record.leaving = number_at(*read, "leaving");
    record.pair_ns = number_at(*read, "pair_ns");
    record.bytes_per_s = number_at(*read, "bytes_per_s");
    for (const json &entry : list_at(*read, "arrived"))
        if (const auto page = index_of(entry, plan.pages())) record.arrived.push_back(*page);
    for (const json &entry : list_at(*read, "round_trip_ns"))
        if (record.round_trip_ns.size() < plan.servers.size())
            record.round_trip_ns.push_back(entry.is_number_unsigned() ? entry.get<uint64_t>() : 0);
    record.round_trip_ns.resize(plan.servers.size(), 0);
    return record;
}

}  // namespace moorage::core
