// timeline_sink.cpp - spans, arrows from transfers to their use, and counters.
#include "core/pipeline/timeline_sink.h"

#include <algorithm>
#include <array>

#include "core/base/text.h"
#include "core/execute/links.h"
#include "core/pipeline/policy_set.h"
#include "core/store/memories.h"
#include "core/transport/transport_stage.h"

namespace moorage::core {

namespace {

constexpr std::array<const char *, owner_count> causes{"demand", "prefetch", "prefetch",
                                                       "behind", "fill",     "serve"};

uint64_t before(uint64_t now_ns, uint64_t duration_ns) {
    return now_ns < duration_ns ? 0 : now_ns - duration_ns;
}

}  // namespace

timeline_sink::timeline_sink(timeline &to, uint32_t experts, std::string_view device,
                             std::string_view host, window tokens)
    : to_(to), experts_(experts), device_(device), host_(host), tokens_(tokens) {
    uint32_t next = 0;
    for (const char *name : {"GPU compute", "copy host to GPU", "copy GPU to host"})
        tracks_[next++] = to.track(name, device);
    tracks_[next++] = to.track("CPU pool", host);
    passes_ = to.track("tokens", device);
    requests_ = to.track("requests", device);
    causes_ = to.track("causes, token by token", device);
    evictions_ = to.track("evictions", device);
    resident_ = to.counter("resident experts", device);
    hit_rate_ = to.counter("hit rate, %", device);
    queue_ = to.counter("loads waiting, MB", device);
    bandwidth_ = to.counter("loaded, GB/s", device);
}

uint32_t timeline_sink::track_of(track where) {
    if (where == disk && disk_ == MOORAGE_NONE)  // most runs have none
        disk_ = to_.track("disk to host", host_);
    if (where == disk) return disk_;
    if (where < count) return tracks_[where];
    const uint32_t device = where / count;  // beyond the first
    const char *name = where % count == gpu ? "GPU compute" : "copy host to GPU";
    return to_.track(name, format("{} {}", device_, device));
}

// Transfers come by copied(), which knows what for.
void timeline_sink::span(track where, const char *kind, uint32_t layer, uint32_t page,
                         uint64_t start_ns, uint64_t end_ns) {
    const track of = static_cast<track>(where % count);
    if (of == h2d || of == disk) return;
    show_span(track_of(where), kind, layer, page, start_ns, end_ns);
}

void timeline_sink::show_span(uint32_t at, const char *kind, uint32_t layer, uint32_t page,
                              uint64_t start_ns, uint64_t end_ns) {
    if (page == MOORAGE_NONE)
        return to_.span(at, kind, start_ns, end_ns - start_ns, {{"layer", layer}});
    const uint64_t flow = page < arrival_.size() ? std::exchange(arrival_[page], 0) : 0;
    to_.span(at, format("{} {}.{}", kind, page / experts_, page % experts_), start_ns,
             end_ns - start_ns,
             {{"layer", page / experts_}, {"expert", page % experts_}, {"during layer", layer}},
             {flow, true});
}

void timeline_sink::copied(const transfer_record &of, uint64_t bytes, uint64_t duration_ns,
                           uint64_t now_ns) {
    if (of.page == MOORAGE_NONE) return;
    const bool loads = is_h2d(of.link);
    const track where = loads ? of_device(h2d, device_of_link(of.link)) : disk;
    if (arrival_.size() <= of.page) arrival_.resize(of.page + size_t{1}, 0);
    uint64_t &flow = arrival_[of.page];
    const bool first = loads && flow == 0;  // of its pieces
    if (first) flow = ++flows_;
    const char *cause = causes[static_cast<size_t>(of.of)];
    to_.span(track_of(where),
             format("{} {}.{}", loads ? cause : "read", of.page / experts_, of.page % experts_),
             before(now_ns, duration_ns), std::min(duration_ns, now_ns),
             {{"layer", of.page / experts_},
              {"expert", of.page % experts_},
              {"cause", cause},
              {"bytes", bytes}},
             {first ? flow : 0, false});
}

void timeline_sink::computed(event_kind kind, uint32_t layer, uint32_t page, uint64_t duration_ns,
                             uint64_t now_ns) {
    const track where = kind == event_kind::cpu_expert ? cpu : gpu;
    show_span(track_of(where), name_of(kind), layer, page, before(now_ns, duration_ns), now_ns);
}

void timeline_sink::pass_begins(const pass &of, uint64_t tokens_done, uint64_t loaded_bytes,
                                uint64_t now_ns) {
    before_.loaded_bytes = loaded_bytes;
    to_.show(tokens_done + of.tokens.size() > tokens_.first && tokens_done < tokens_.second);
    pass_ns_ = now_ns;
    pass_token_ = tokens_done;
    for (const pass_token &token : of.tokens)
        if (token.position == 0)
            open_[token.stream] = {token.request,
                                   token.arrived_ns == MOORAGE_NEVER ? now_ns : token.arrived_ns};
}

void timeline_sink::show_requests(const pass &of, uint64_t now_ns) {
    for (const pass_token &token : of.tokens) {
        const auto at = open_.find(token.stream);
        if (!token.last || at == open_.end()) continue;
        // Requests of other streams overlap: each has a row of its own.
        const uint32_t row =
            token.stream == 0 ? requests_ : to_.track(format("requests {}", token.stream), device_);
        to_.span(row, format("request {}", at->second.number), at->second.begun_ns,
                 now_ns - at->second.begun_ns, {{"request", at->second.number}});
        open_.erase(at);
    }
}

// As spans that fill the pass, in the order of causes: their lengths are right, their places are
// not.
void timeline_sink::show_causes(const time_causes &of, uint64_t now_ns) {
    uint64_t at_ns = before(now_ns, of.sum());
    for (size_t i = 0; i < cause_count; ++i) {
        if (of.ns[i] != 0)
            to_.span(causes_, cause_names[i], at_ns, of.ns[i],
                     {{"share", static_cast<double>(of.ns[i]) / static_cast<double>(of.sum())}});
        at_ns += of.ns[i];
    }
}

void timeline_sink::pass_ended(const pass &of, const sums &now, uint64_t now_ns) {
    const bool prefill = of.phase == MOORAGE_PREFILL;
    to_.span(passes_,
             of.tokens.size() == 1
                 ? format("token {}", pass_token_)
                 : format("tokens {} to {}", pass_token_, pass_token_ + of.tokens.size() - 1),
             pass_ns_, now_ns - pass_ns_,
             {{"phase", prefill ? "prefill" : "decode"}, {"tokens", of.tokens.size()}});
    show_causes(now.causes - before_.causes, now_ns);
    show_requests(of, now_ns);
    const uint64_t requested = now.requested - before_.requested;
    if (requested != 0)
        to_.value(
            hit_rate_, now_ns,
            100 * static_cast<double>(now.hits - before_.hits) / static_cast<double>(requested));
    if (now_ns > pass_ns_)
        to_.value(bandwidth_, now_ns,
                  static_cast<double>(now.loaded_bytes - before_.loaded_bytes) /
                      static_cast<double>(now_ns - pass_ns_));
    to_.value(queue_, now_ns, static_cast<double>(now.waiting_bytes) / 1e6);
    before_ = now;
    std::map<std::string, std::vector<fact>> stated;
    if (!stating_ || !stating_->state_facts(stated)) return;
    for (const auto &[policy, facts] : stated)
        for (const fact &one : facts)
            to_.value(to_.counter(format("{}: {}", policy, one.name), device_), now_ns, one.value);
}

void timeline_sink::decided(const memories &truth, uint64_t now_ns) {
    const uint32_t pages = truth.all().page_count();
    there_.resize(pages, 0);
    uint32_t resident = 0;
    for (uint32_t page = 0; page < pages; ++page) {
        const uint8_t here = truth.of(page).here(page);
        resident += here != 0;
        if (there_[page] != 0 && here == 0)
            to_.instant(evictions_, format("{}.{}", page / experts_, page % experts_), now_ns,
                        {{"layer", page / experts_}, {"expert", page % experts_}});
        there_[page] = here;
    }
    to_.value(resident_, now_ns, resident);
}

}  // namespace moorage::core
