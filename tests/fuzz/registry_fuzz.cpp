// registry_fuzz.cpp - fuzz target of data from a registry. Any text gives a refusal in one line, or
// values within the bounds. An accepted plan can be served. The first byte gives the kind of the
// rest.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "tools/node/plan_record.h"
#include "tools/registry/cluster_registry.h"
#include "tools/registry/etcd_values.h"

using namespace moorage::core;

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

node_plan small_plan() {
    node_plan plan;
    for (const char *name : {"one", "two", "three"}) plan.servers.push_back({name, {}});
    plan.sizes = {.layers = 2, .experts = 2, .hidden = 4, .rows_max = 4};
    plan.cluster = 1;
    plan.model = 2;
    return plan;
}

void check_plan(std::string_view text) {
    const node_plan plan = small_plan();
    const auto read = read_plan_record(9, text, plan);
    if (!read) return require(read.failure().text.find('\n') == std::string::npos);
    require(read->holders.size() == plan.pages());
    for (const auto &holders : read->holders) {
        require(!holders.empty());
        for (size_t i = 0; i < holders.size(); ++i)
            require(holders[i] < plan.servers.size() && (i == 0 || holders[i - 1] < holders[i]));
    }
    for (const moving_copy &copy : read->coming)
        require(copy.page < plan.pages() && copy.target < plan.servers.size() &&
                (copy.source == no_server || copy.source < plan.servers.size()));
    const auto again = read_plan_record(9, to_text(*read, plan), plan);
    require(again.ok() && *again == *read);
}

void check_member(std::string_view text) {
    const node_plan plan = small_plan();
    const auto read = read_member_record(text, plan);
    if (!read) return require(read.failure().text.find('\n') == std::string::npos);
    require(read->round_trip_ns.size() == plan.servers.size());
    for (const uint32_t page : read->arrived) require(page < plan.pages());
    require(read_member_record(to_text(*read), plan).ok());
}

void check_etcd(std::string_view text) {
    const json read = parse_etcd(text);
    if (read.is_discarded()) return;
    require(etcd_error(read).find('\n') == std::string::npos);
    for (const char *key : {"header", "result", "kvs", "events", "kv"}) {
        const json &part = etcd_part(read, key);
        (void)etcd_number(part, "revision");
        (void)etcd_flag(part, "created");
        for (const json &pair : part) (void)etcd_pair_of(pair);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes == 0) return 0;
    const std::string_view text(reinterpret_cast<const char *>(data) + 1, bytes - 1);
    if (data[0] % 4 == 0) check_plan(text);
    if (data[0] % 4 == 1) check_member(text);
    if (data[0] % 4 == 2) check_etcd(text);
    if (data[0] % 4 == 3) {
        uint64_t epoch = 0;
        std::string plan;
        if (split_epoch(std::string(text), epoch, plan)) require(epoch != 0);
        if (const auto back = from_base64(text)) require(from_base64(base64(*back)) == back);
    }
    return 0;
}
