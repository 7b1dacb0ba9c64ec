// call_list.cpp - reads the tables of an instance slot by slot.
#include "core/host/call_list.h"

#include <utility>

#include "core/base/text.h"

namespace moorage::core {

namespace {

// An empty future, for policies that need one at their creation.
struct no_future final : future_view {
    uint64_t next_use(uint32_t, uint64_t, uint64_t *) override { return MOORAGE_NEVER; }
    void rewind() override {}
};

}  // namespace

std::vector<kind_calls> list_calls(const instance &instance) {
    std::vector<kind_calls> calls;
#define MOORAGE_CALL(member, name, function, ...) \
    (table->function ? listed.found : listed.absent).push_back(#function);
#define MOORAGE_TABLE(member, name, id, last)                                       \
    if (const auto *const table = instance.member) {                                \
        kind_calls listed{#name, {}, {}};                                           \
        MOORAGE_CALLS_OF_##member(MOORAGE_CALL) calls.push_back(std::move(listed)); \
    }
    MOORAGE_TABLES(MOORAGE_TABLE)
#undef MOORAGE_CALL
#undef MOORAGE_TABLE
    // Not a call of the policy if a wrapper derived it from the others.
    if (instance.replayer && (instance.replayer->flags & MOORAGE_REPLAY_DERIVED) != 0)
        std::erase_if(calls, [](const kind_calls &listed) { return listed.kind == "replay"; });
    return calls;
}

result<std::vector<kind_calls>> list_calls(const policy &policy) {
    no_future future;
    environment nowhere;
    nowhere.future = &future;
    const auto created = instance::create(policy, {}, nowhere);
    if (!created) return created.failure();
    return list_calls(**created);
}

std::string text_of(const std::vector<kind_calls> &calls) {
    std::string text;
    for (const kind_calls &entry : calls) {
        text +=
            format("{}{}: {}", text.empty() ? "" : "; ", entry.kind, fmt::join(entry.found, ", "));
        if (!entry.absent.empty()) text += format(" (not {})", fmt::join(entry.absent, ", "));
    }
    return text;
}

}  // namespace moorage::core
