// call_list.cpp - reads the tables of an instance slot by slot.
#include "core/host/call_list.h"

#include <initializer_list>

#include "core/base/text.h"

namespace moorage::core {

namespace {

// An empty future, for policies that need one at their creation.
struct no_future final : future_view {
    uint64_t next_use(uint32_t, uint64_t, uint64_t *) override { return MOORAGE_NEVER; }
    void rewind() override {}
};

struct slot {
    std::string_view name;
    bool filled;
};
kind_calls calls_of(std::string_view kind, std::initializer_list<slot> slots) {
    kind_calls calls{kind, {}, {}};
    for (const slot &slot : slots) (slot.filled ? calls.found : calls.absent).push_back(slot.name);
    return calls;
}

}  // namespace

std::vector<kind_calls> list_calls(const instance &instance) {
    std::vector<kind_calls> calls;
    if (instance.router) calls.push_back(calls_of("router", {{"select", true}}));
    if (const auto *t = instance.cache)
        calls.push_back(calls_of("cache", {{"victims", true},
                                           {"admit", t->admit != nullptr},
                                           {"on_load", t->on_load != nullptr},
                                           {"on_evict", t->on_evict != nullptr},
                                           {"fill", t->fill != nullptr},
                                           {"hold", t->hold != nullptr},
                                           {"give_up", t->give_up != nullptr}}));
    if (const auto *t = instance.budget)
        calls.push_back(calls_of("budget", {{"plan", true}, {"interval", t->interval != nullptr}}));
    if (const auto *t = instance.prefetch)
        calls.push_back(calls_of("prefetch", {{"horizon", t->horizon != nullptr},
                                              {"predict", t->predict != nullptr},
                                              {"plan", true},
                                              {"outcome", t->outcome != nullptr},
                                              {"prediction", t->prediction != nullptr}}));
    if (const auto *t = instance.dispatch)
        calls.push_back(
            calls_of("dispatch", {{"assign", true}, {"outcome", t->outcome != nullptr}}));
    if (const auto *t = instance.placement)
        calls.push_back(calls_of("placement", {{"plan", true}, {"adopt", t->adopt != nullptr}}));
    if (instance.transport)
        calls.push_back(calls_of(
            "transport", {{"submit", true}, {"cancel", true}, {"promote", true}, {"next", true}}));
    if (const auto *t = instance.wire)
        calls.push_back(calls_of("wire", {{"open", true},
                                          {"listen", true},
                                          {"connect", true},
                                          {"send", true},
                                          {"poll", true},
                                          {"wake", true},
                                          {"release", true},
                                          {"close", true},
                                          {"pace", t->pace != nullptr},
                                          {"remember", t->remember != nullptr},
                                          {"forget", t->forget != nullptr}}));
    if (instance.observer) calls.push_back(calls_of("observer", {{"observe", true}}));
    if (instance.facts) calls.push_back(calls_of("facts", {{"facts", true}}));
    if (instance.replayer && (instance.replayer->flags & MOORAGE_REPLAY_DERIVED) == 0)
        calls.push_back(calls_of("replay", {{"replay", true}}));
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
