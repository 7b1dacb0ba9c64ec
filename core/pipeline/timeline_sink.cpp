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

constexpr std::array<const char *, owner_count> owner_names{"demand", "prefetch", "prefetch",
                                                            "behind", "fill",     "serve"};

uint64_t start_of(uint64_t now_ns, uint64_t duration_ns) {
    return now_ns < duration_ns ? 0 : now_ns - duration_ns;
}

}  // namespace

timeline_sink::timeline_sink(timeline &timeline, uint32_t experts, std::string_view device,
                             std::string_view host, window tokens)
    : timeline_(timeline), experts_(experts), device_(device), host_(host), tokens_(tokens) {
    uint32_t next = 0;
    for (const char *name : {"GPU compute", "copy host to GPU", "copy GPU to host"})
        tracks_[next++] = timeline.track(name, device);
    tracks_[next++] = timeline.track("CPU pool", host);
    passes_ = timeline.track("tokens", device);
    requests_ = timeline.track("requests", device);
    causes_ = timeline.track("causes, token by token", device);
    evictions_ = timeline.track("evictions", device);
    resident_ = timeline.counter("resident experts", device);
    hit_rate_ = timeline.counter("hit rate, %", device);
    queue_ = timeline.counter("loads waiting, MB", device);
    bandwidth_ = timeline.counter("loaded, GB/s", device);
}

uint32_t timeline_sink::track_of(track track) {
    if (track == disk && disk_ == MOORAGE_NONE)  // most runs have none
        disk_ = timeline_.track("disk to host", host_);
    if (track == disk) return disk_;
    if (track < count) return tracks_[track];
    const uint32_t device = track / count;  // beyond the first
    const char *name = track % count == gpu ? "GPU compute" : "copy host to GPU";
    return timeline_.track(name, format("{} {}", device_, device));
}

// Transfers come by copied(), which knows what for.
void timeline_sink::span(track device_track, const char *kind, uint32_t layer, uint32_t page,
                         uint64_t start_ns, uint64_t end_ns) {
    const track track_kind = static_cast<track>(device_track % count);
    if (track_kind == h2d || track_kind == disk) return;
    show_span(track_of(device_track), kind, layer, page, start_ns, end_ns);
}

void timeline_sink::show_span(uint32_t row, const char *kind, uint32_t layer, uint32_t page,
                              uint64_t start_ns, uint64_t end_ns) {
    if (page == MOORAGE_NONE)
        return timeline_.span(row, kind, start_ns, end_ns - start_ns, {{"layer", layer}});
    const uint64_t flow = page < page_flows_.size() ? std::exchange(page_flows_[page], 0) : 0;
    timeline_.span(
        row, format("{} {}.{}", kind, page / experts_, page % experts_), start_ns,
        end_ns - start_ns,
        {{"layer", page / experts_}, {"expert", page % experts_}, {"during layer", layer}},
        {flow, true});
}

void timeline_sink::copied(const transfer_record &record, uint64_t bytes, uint64_t duration_ns,
                           uint64_t now_ns) {
    if (record.page == MOORAGE_NONE) return;
    const bool loads = is_h2d(record.link);
    const track track = loads ? of_device(h2d, device_of_link(record.link)) : disk;
    if (page_flows_.size() <= record.page) page_flows_.resize(record.page + size_t{1}, 0);
    uint64_t &flow = page_flows_[record.page];
    const bool first = loads && flow == 0;  // of its pieces
    if (first) flow = ++flows_;
    const char *cause = owner_names[static_cast<size_t>(record.owned_by)];
    timeline_.span(
        track_of(track),
        format("{} {}.{}", loads ? cause : "read", record.page / experts_, record.page % experts_),
        start_of(now_ns, duration_ns), std::min(duration_ns, now_ns),
        {{"layer", record.page / experts_},
         {"expert", record.page % experts_},
         {"cause", cause},
         {"bytes", bytes}},
        {first ? flow : 0, false});
}

void timeline_sink::computed(event_kind kind, uint32_t layer, uint32_t page, uint64_t duration_ns,
                             uint64_t now_ns) {
    const track track = kind == event_kind::cpu_expert ? cpu : gpu;
    show_span(track_of(track), name_of(kind), layer, page, start_of(now_ns, duration_ns), now_ns);
}

void timeline_sink::pass_begins(const pass &pass, uint64_t tokens_done, uint64_t loaded_bytes,
                                uint64_t now_ns) {
    previous_.loaded_bytes = loaded_bytes;
    timeline_.show(tokens_done + pass.tokens.size() > tokens_.first &&
                   tokens_done < tokens_.second);
    pass_ns_ = now_ns;
    pass_token_ = tokens_done;
    for (const pass_token &token : pass.tokens)
        if (token.position == 0)
            open_requests_[token.stream] = {
                token.request, token.arrived_ns == MOORAGE_NEVER ? now_ns : token.arrived_ns};
}

void timeline_sink::show_requests(const pass &pass, uint64_t now_ns) {
    for (const pass_token &token : pass.tokens) {
        const auto entry = open_requests_.find(token.stream);
        if (!token.last || entry == open_requests_.end()) continue;
        // Requests of other streams overlap: each has a row of its own.
        const uint32_t row = token.stream == 0
                                 ? requests_
                                 : timeline_.track(format("requests {}", token.stream), device_);
        timeline_.span(row, format("request {}", entry->second.number), entry->second.begun_ns,
                       now_ns - entry->second.begun_ns, {{"request", entry->second.number}});
        open_requests_.erase(entry);
    }
}

// As spans that fill the pass, in the order of causes: their lengths are right, their places are
// not.
void timeline_sink::show_causes(const time_causes &causes, uint64_t now_ns) {
    uint64_t at_ns = start_of(now_ns, causes.sum());
    for (size_t i = 0; i < cause_count; ++i) {
        if (causes.ns[i] != 0)
            timeline_.span(
                causes_, cause_names[i], at_ns, causes.ns[i],
                {{"share", static_cast<double>(causes.ns[i]) / static_cast<double>(causes.sum())}});
        at_ns += causes.ns[i];
    }
}

void timeline_sink::pass_ended(const pass &pass, const sums &now, uint64_t now_ns) {
    const bool prefill = pass.phase == MOORAGE_PREFILL;
    timeline_.span(passes_,
                   pass.tokens.size() == 1 ? format("token {}", pass_token_)
                                           : format("tokens {} to {}", pass_token_,
                                                    pass_token_ + pass.tokens.size() - 1),
                   pass_ns_, now_ns - pass_ns_,
                   {{"phase", prefill ? "prefill" : "decode"}, {"tokens", pass.tokens.size()}});
    show_causes(now.causes - previous_.causes, now_ns);
    show_requests(pass, now_ns);
    const uint64_t requested = now.requested - previous_.requested;
    if (requested != 0)
        timeline_.value(
            hit_rate_, now_ns,
            100 * static_cast<double>(now.hits - previous_.hits) / static_cast<double>(requested));
    if (now_ns > pass_ns_)
        timeline_.value(bandwidth_, now_ns,
                        static_cast<double>(now.loaded_bytes - previous_.loaded_bytes) /
                            static_cast<double>(now_ns - pass_ns_));
    timeline_.value(queue_, now_ns, static_cast<double>(now.waiting_bytes) / 1e6);
    previous_ = now;
    std::map<std::string, std::vector<fact>> stated;
    if (!policies_ || !policies_->state_facts(stated)) return;
    for (const auto &[policy, facts] : stated)
        for (const fact &fact : facts)
            timeline_.value(timeline_.counter(format("{}: {}", policy, fact.name), device_), now_ns,
                            fact.value);
}

void timeline_sink::decided(const memories &memories, uint64_t now_ns) {
    const uint32_t pages = memories.combined_ledger().page_count();
    present_.resize(pages, 0);
    uint32_t resident = 0;
    for (uint32_t page = 0; page < pages; ++page) {
        const uint8_t present = memories.ledger_of_page(page).resident_segments(page);
        resident += present != 0;
        if (present_[page] != 0 && present == 0)
            timeline_.instant(evictions_, format("{}.{}", page / experts_, page % experts_), now_ns,
                              {{"layer", page / experts_}, {"expert", page % experts_}});
        present_[page] = present;
    }
    timeline_.value(resident_, now_ns, resident);
}

}  // namespace moorage::core
