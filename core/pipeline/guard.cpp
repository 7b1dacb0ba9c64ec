// guard.cpp - windows, pairs, verdicts: what stays on.
#include "core/pipeline/guard.h"

#include <algorithm>
#include <cassert>

namespace moorage::core {

namespace {

constexpr const char *arm_names[] = {"cache", "prefetch", "substitution"};
constexpr const char *did_nothing[] = {"no load took the place of another expert",
                                       "nothing was moved ahead", "nothing was substituted"};
constexpr const char *copies_nothing = "loads copy nothing here";

}  // namespace

guard::guard(const guard_rules &rules, std::array<bool, arms> there) : rules_(rules) {
    assert(rules.window >= 4 && rules.margin >= 0);
    for (size_t phase = 0; phase < phases; ++phase) {
        for (size_t which = 0; which < arms; ++which) {
            state &of = of_[phase][which];
            of.there = there[which];
            of.held = !rules.active;
            of.due = 2 * uint64_t{window(phase)} + 1;
        }
        if (!rules.active || !rules.unified) continue;
        of_[phase][cache].held = true;
        of_[phase][prefetch].held = true;
        of_[phase][prefetch].stands = false;
    }
    if (rules.prefill_keeps) {
        of_[MOORAGE_PREFILL][cache].held = true;
        of_[MOORAGE_PREFILL][cache].stands = false;
    }
}

void guard::begin(int32_t phase) {
    assert(phase == MOORAGE_PREFILL || phase == MOORAGE_DECODE);
    phase_ = static_cast<size_t>(phase);
    ++passes_[phase_];
    trial &of = trials_[phase_];
    // A trial that compares both phases starts anew when the other phase has changed.
    if (of.runs && shows_in_both(phase_, of.of) && of.others != changes_) of = {};
    if (of.runs && window_full(phase_)) close_window(phase_);
    if (!of.runs) choose(phase_);
    for (size_t which = 0; which < arms; ++which) {
        const bool tried = of.runs && of.of == which;
        on_[which] = tried ? side(of, phase_) : of_[phase_][which].stands;
    }
}

void guard::end(uint64_t tokens, uint64_t ns) {
    tokens_ += tokens;
    for (size_t which = 0; which < arms; ++which)
        if (!on_[which]) of_[phase_][which].off_tokens += tokens;
    if (trial &of = trials_[phase_]; of.runs) {
        ++of.passes;
        of.all.add(phase_, tokens, ns);
        if (of.passes > uncounted(phase_)) of.counted.add(phase_, tokens, ns);
    } else {
        doubt(phase_, tokens, ns);
    }
    trial &prefill = trials_[MOORAGE_PREFILL];
    const bool shows = phase_ == MOORAGE_DECODE && prefill.runs &&
                       shows_in_both(MOORAGE_PREFILL, prefill.of) && !trials_[phase_].runs;
    if (shows && prefill.passes > uncounted(MOORAGE_PREFILL))
        prefill.counted.add(phase_, tokens, ns);
}

// A trial sees the cache as the side before left it, so the effect of a decision shows later. If
// the chosen side then costs more than the other side did, the other side is tried before its time.
void guard::doubt(size_t phase, uint64_t tokens, uint64_t ns) {
    standing &now = standing_[phase];
    now.tokens += tokens;
    now.ns += ns;
    if (++now.passes < trial_passes(phase)) return;
    const double usual_ns = double(now.ns) / double(now.tokens);
    now = {};
    for (size_t which = 0; which < arms; ++which) {
        state &of = of_[phase][which];
        if (of.trials == 0 || shows_in_both(phase, static_cast<arm>(which))) continue;
        const double other_ns = of.stands ? of.off_ns : of.on_ns;
        const bool worse = usual_ns > (1 + rules_.margin) * other_ns;
        const uint64_t next = passes_[phase] + 1;
        if (worse && next >= of.early) of.due = std::min(of.due, next);
    }
}

// The sides of a trial: as it stands, other, other, as it stands, as it stands, ...
bool guard::side(const trial &of, size_t phase) const {
    const bool stands = of_[phase][of.of].stands;
    const bool as_it_stands = of.windows % 2 == of.windows / 2 % 2;
    return as_it_stands ? stands : !stands;
}

// Prompts differ in length, so only windows of decoding can count as hopeless.
bool guard::window_full(size_t phase) const {
    const trial &of = trials_[phase];
    if (of.passes >= window(phase)) return true;
    const double usual_ns = of.usual_ns[!side(of, phase)];
    if (phase != MOORAGE_DECODE || usual_ns == 0 || of.passes == 0) return false;
    const double whole_ns =
        usual_ns * double(of.all.tokens[phase]) * window(phase) / double(of.passes);
    return double(of.all.ns[phase]) > hopeless_ratio * whole_ns;
}

void guard::choose(size_t phase) {
    for (size_t which = 0; which < arms; ++which) {
        const state &one = of_[phase][which];
        if (!one.there || one.held || !one.matters || one.due > passes_[phase]) continue;
        trial &of = trials_[phase];
        of = {};
        of.runs = true;
        of.of = static_cast<arm>(which);
        of.others = changes_;
        return;
    }
}

void guard::close_window(size_t phase) {
    trial &of = trials_[phase];
    const bool was_on = side(of, phase);
    // A window that was cut off early may have only its uncounted beginning.
    const tally &taken = of.counted.tokens[phase] != 0 ? of.counted : of.all;
    assert(taken.tokens[phase] != 0 && "a pass has tokens");
    of.closed[was_on] = taken;
    of.usual_ns[was_on] = double(taken.ns[phase]) / double(taken.tokens[phase]);
    of.counted = of.all = {};
    of.passes = 0;
    ++of.windows;
    if (of.windows % 2 != 0) return;
    close_pair(of);
    if (decided(of)) decide(phase);
}

// Both sides are charged for the same work: the tokens of both windows, phase by phase.
void guard::close_pair(trial &of) {
    std::array<double, 2> cost{};
    for (size_t phase = 0; phase < phases; ++phase) {
        const uint64_t off = of.closed[0].tokens[phase], on = of.closed[1].tokens[phase];
        if (off == 0 || on == 0) continue;
        const double tokens = double(off + on);
        for (size_t which = 0; which < 2; ++which)
            cost[which] += double(of.closed[which].ns[phase]) /
                           double(of.closed[which].tokens[phase]) * tokens;
        of.tokens += tokens;
    }
    for (size_t which = 0; which < 2; ++which) {
        of.cost[which] += cost[which];
        of.slower[which] += cost[which] > cost[1 - which];
    }
}

bool guard::clearly_slower(const trial &of, size_t one) const {
    return of.cost[one] > (1 + rules_.margin) * of.cost[1 - one] &&
           2 * of.slower[one] > of.windows / 2;
}

// When the mean says one thing and the pairs do not, there are as many pairs again.
bool guard::decided(const trial &of) const {
    const uint32_t pairs = of.windows / 2;
    if (pairs >= pairs_usual) {
        const auto [least, most] = std::minmax(of.cost[0], of.cost[1]);
        const bool tie = most <= (1 + rules_.margin) * least;
        return pairs == 2 * pairs_usual || tie || clearly_slower(of, 0) || clearly_slower(of, 1);
    }
    if (pairs < 2 || (of.slower[0] != pairs && of.slower[1] != pairs)) return false;
    const auto [less, more] = std::minmax(of.cost[0], of.cost[1]);
    return more >= plain_ratio * less;
}

void guard::decide(size_t phase) {
    trial &done = trials_[phase];
    state &of = of_[phase][done.of];
    const bool stays = of.stands && !clearly_slower(done, 1) && done.of != substitution;
    const bool next = clearly_slower(done, 0) || stays;
    of.on_ns = done.cost[1] / done.tokens;
    of.off_ns = done.cost[0] / done.tokens;
    ++of.trials;
    if (next != of.stands) {
        of.stands = next;
        of.since_token = tokens_;
        of.longer = 1;
        ++changes_;
        // The gain of the other arms may be different now. They are tried again only after the
        // first change: more would never come to rest.
        if (of.changes++ == 0)
            for (state &other : of_[phase])
                other.due = std::min(other.due, passes_[phase] + window(phase));
    } else if (of.trials > 1) {
        of.longer = std::min(2 * of.longer, stands_longer_max);
    }
    of.early = passes_[phase] + of.longer * trial_passes(phase);
    of.due = passes_[phase] + uint64_t{stands_trials} * of.longer * trial_passes(phase);
    standing_[phase] = {};
    done = {};
}

std::vector<guard_arm> guard::report() const {
    std::vector<guard_arm> all;
    if (!rules_.active) return all;
    for (const size_t phase : {size_t{MOORAGE_DECODE}, size_t{MOORAGE_PREFILL}}) {
        if (passes_[phase] == 0) continue;
        for (size_t which = 0; which < arms; ++which) {
            const state &of = of_[phase][which];
            if (!of.there) continue;
            guard_arm told;
            told.name = arm_names[which];
            told.phase = phase == MOORAGE_DECODE ? "decode" : "prefill";
            told.on = of.stands;
            told.on_ns = of.on_ns;
            told.off_ns = of.off_ns;
            told.since_token = of.since_token;
            told.trials = of.trials;
            told.changes = of.changes;
            told.off_tokens = of.off_tokens;
            told.as_configured = of.held && rules_.prefill_keeps && which == cache && phase == 0;
            if (told.as_configured)
                told.why = "[memory] prefill_displaces = false";
            else if (of.held)
                told.why = copies_nothing;
            else if (of.trials == 0)
                told.why = of.matters ? "the run was too short for a trial" : did_nothing[which];
            all.push_back(std::move(told));
        }
    }
    return all;
}

}  // namespace moorage::core
