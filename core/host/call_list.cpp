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
    for (const slot &one : slots) (one.filled ? calls.found : calls.absent).push_back(one.name);
    return calls;
}

}  // namespace

std::vector<kind_calls> list_calls(const instance &of) {
    std::vector<kind_calls> all;
    if (of.router) all.push_back(calls_of("router", {{"select", true}}));
    if (const auto *t = of.cache)
        all.push_back(calls_of("cache", {{"victims", true},
                                         {"admit", t->admit != nullptr},
                                         {"on_load", t->on_load != nullptr},
                                         {"on_evict", t->on_evict != nullptr},
                                         {"fill", t->fill != nullptr},
                                         {"hold", t->hold != nullptr},
                                         {"give_up", t->give_up != nullptr}}));
    if (const auto *t = of.budget)
        all.push_back(calls_of("budget", {{"plan", true}, {"interval", t->interval != nullptr}}));
    if (const auto *t = of.prefetch)
        all.push_back(calls_of("prefetch", {{"horizon", t->horizon != nullptr},
                                            {"predict", t->predict != nullptr},
                                            {"plan", true},
                                            {"outcome", t->outcome != nullptr},
                                            {"prediction", t->prediction != nullptr}}));
    if (const auto *t = of.dispatch)
        all.push_back(calls_of("dispatch", {{"assign", true}, {"outcome", t->outcome != nullptr}}));
    if (const auto *t = of.placement)
        all.push_back(calls_of("placement", {{"plan", true}, {"adopt", t->adopt != nullptr}}));
    if (of.transport)
        all.push_back(calls_of(
            "transport", {{"submit", true}, {"cancel", true}, {"promote", true}, {"next", true}}));
    if (const auto *t = of.wire)
        all.push_back(calls_of("wire", {{"open", true},
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
    if (of.observer) all.push_back(calls_of("observer", {{"observe", true}}));
    if (of.facts) all.push_back(calls_of("facts", {{"facts", true}}));
    if (of.replayer && (of.replayer->flags & MOORAGE_REPLAY_DERIVED) == 0)
        all.push_back(calls_of("replay", {{"replay", true}}));
    return all;
}

result<std::vector<kind_calls>> list_calls(const policy &of) {
    no_future future;
    environment nowhere;
    nowhere.future = &future;
    const auto made = instance::create(of, {}, nowhere);
    if (!made) return made.failure();
    return list_calls(**made);
}

std::string text_of(const std::vector<kind_calls> &calls) {
    std::string text;
    for (const kind_calls &of : calls) {
        text += format("{}{}: {}", text.empty() ? "" : "; ", of.kind, fmt::join(of.found, ", "));
        if (!of.absent.empty()) text += format(" (not {})", fmt::join(of.absent, ", "));
    }
    return text;
}

}  // namespace moorage::core
