// guard.cpp - windows, pairs, verdicts: what stays on.
#include "core/pipeline/guard.h"

#include <algorithm>

#include "core/base/invariant.h"

namespace moorage::core {

namespace {

constexpr const char *arm_names[] = {"cache", "prefetch", "substitution"};
constexpr const char *did_nothing[] = {"no load took the place of another expert",
                                       "nothing was moved ahead", "nothing was substituted"};
constexpr const char *copies_nothing = "loads copy nothing here";

}  // namespace

guard::guard(const guard_rules &rules, std::array<bool, arms> available) : rules_(rules) {
    MOORAGE_INVARIANT(rules.window >= 4 && rules.margin >= 0);
    for (size_t phase = 0; phase < phases; ++phase) {
        for (size_t which = 0; which < arms; ++which) {
            state &arm_state = states_[phase][which];
            arm_state.available = available[which];
            arm_state.held = !rules.active;
            arm_state.due_pass = 2 * uint64_t{window(phase)} + 1;
        }
        if (!rules.active || !rules.unified) continue;
        states_[phase][cache].held = true;
        states_[phase][prefetch].held = true;
        states_[phase][prefetch].chosen_on = false;
    }
    if (rules.prefill_keeps) {
        states_[MOORAGE_PREFILL][cache].held = true;
        states_[MOORAGE_PREFILL][cache].chosen_on = false;
    }
}

void guard::begin(int32_t phase) {
    MOORAGE_INVARIANT(phase == MOORAGE_PREFILL || phase == MOORAGE_DECODE);
    phase_ = static_cast<size_t>(phase);
    ++passes_[phase_];
    trial &trial = trials_[phase_];
    // A trial that compares both phases starts anew when the other phase has changed.
    if (trial.runs && shows_in_both(phase_, trial.tried_arm) && trial.changes_at_begin != changes_)
        trial = {};
    if (trial.runs && window_full(phase_)) close_window(phase_);
    if (!trial.runs) begin_trial(phase_);
    for (size_t which = 0; which < arms; ++which) {
        const bool tried = trial.runs && trial.tried_arm == which;
        arm_on_[which] = tried ? is_arm_on(trial, phase_) : states_[phase_][which].chosen_on;
    }
}

void guard::end(uint64_t tokens, uint64_t ns) {
    tokens_ += tokens;
    for (size_t which = 0; which < arms; ++which)
        if (!arm_on_[which]) states_[phase_][which].off_tokens += tokens;
    if (trial &current = trials_[phase_]; current.runs) {
        ++current.passes;
        current.total.add(phase_, tokens, ns);
        if (current.passes > uncounted(phase_)) current.counted.add(phase_, tokens, ns);
    } else {
        check_standing(phase_, tokens, ns);
    }
    trial &prefill = trials_[MOORAGE_PREFILL];
    const bool shows = phase_ == MOORAGE_DECODE && prefill.runs &&
                       shows_in_both(MOORAGE_PREFILL, prefill.tried_arm) && !trials_[phase_].runs;
    if (shows && prefill.passes > uncounted(MOORAGE_PREFILL))
        prefill.counted.add(phase_, tokens, ns);
}

// A trial sees the cache as the side before left it, so the effect of a decision shows later. If
// the chosen side then costs more than the other side did, the other side is tried before its time.
void guard::check_standing(size_t phase, uint64_t tokens, uint64_t ns) {
    standing &now = standing_[phase];
    now.tokens += tokens;
    now.ns += ns;
    if (++now.passes < trial_passes(phase)) return;
    const double usual_ns = double(now.ns) / double(now.tokens);
    now = {};
    for (size_t which = 0; which < arms; ++which) {
        state &arm_state = states_[phase][which];
        if (arm_state.trials == 0 || shows_in_both(phase, static_cast<arm>(which))) continue;
        const double other_ns = arm_state.chosen_on ? arm_state.off_ns : arm_state.on_ns;
        const bool worse = usual_ns > (1 + rules_.margin) * other_ns;
        const uint64_t next = passes_[phase] + 1;
        if (worse && next >= arm_state.early_due_pass)
            arm_state.due_pass = std::min(arm_state.due_pass, next);
    }
}

// The sides of a trial: as it stands, other, other, as it stands, as it stands, ...
bool guard::is_arm_on(const trial &trial, size_t phase) const {
    const bool stands = states_[phase][trial.tried_arm].chosen_on;
    const bool as_it_stands = trial.windows % 2 == trial.windows / 2 % 2;
    return as_it_stands ? stands : !stands;
}

// Prompts differ in length, so only windows of decoding can count as hopeless.
bool guard::window_full(size_t phase) const {
    const trial &trial = trials_[phase];
    if (trial.passes >= window(phase)) return true;
    const double usual_ns = trial.usual_ns[!is_arm_on(trial, phase)];
    if (phase != MOORAGE_DECODE || usual_ns == 0 || trial.passes == 0) return false;
    const double whole_ns =
        usual_ns * double(trial.total.tokens[phase]) * window(phase) / double(trial.passes);
    return double(trial.total.ns[phase]) > hopeless_ratio * whole_ns;
}

void guard::begin_trial(size_t phase) {
    for (size_t which = 0; which < arms; ++which) {
        const state &arm_state = states_[phase][which];
        if (!arm_state.available || arm_state.held || !arm_state.has_effect ||
            arm_state.due_pass > passes_[phase])
            continue;
        trial &trial = trials_[phase];
        trial = {};
        trial.runs = true;
        trial.tried_arm = static_cast<arm>(which);
        trial.changes_at_begin = changes_;
        return;
    }
}

void guard::close_window(size_t phase) {
    trial &trial = trials_[phase];
    const bool was_on = is_arm_on(trial, phase);
    // A window that was cut off early may have only its uncounted beginning.
    const tally &taken = trial.counted.tokens[phase] != 0 ? trial.counted : trial.total;
    MOORAGE_INVARIANT(taken.tokens[phase] != 0 && "a pass has tokens");
    trial.closed[was_on] = taken;
    trial.usual_ns[was_on] = double(taken.ns[phase]) / double(taken.tokens[phase]);
    trial.counted = trial.total = {};
    trial.passes = 0;
    ++trial.windows;
    if (trial.windows % 2 != 0) return;
    close_pair(trial);
    if (decided(trial)) decide(phase);
}

// Both sides are charged for the same work: the tokens of both windows, phase by phase.
void guard::close_pair(trial &trial) {
    std::array<double, 2> cost{};
    for (size_t phase = 0; phase < phases; ++phase) {
        const uint64_t off_tokens = trial.closed[0].tokens[phase],
                       on_tokens = trial.closed[1].tokens[phase];
        if (off_tokens == 0 || on_tokens == 0) continue;
        const double tokens = double(off_tokens + on_tokens);
        for (size_t which = 0; which < 2; ++which)
            cost[which] += double(trial.closed[which].ns[phase]) /
                           double(trial.closed[which].tokens[phase]) * tokens;
        trial.tokens += tokens;
    }
    for (size_t which = 0; which < 2; ++which) {
        trial.cost[which] += cost[which];
        trial.slower[which] += cost[which] > cost[1 - which];
    }
}

bool guard::clearly_slower(const trial &trial, size_t side) const {
    return trial.cost[side] > (1 + rules_.margin) * trial.cost[1 - side] &&
           2 * trial.slower[side] > trial.windows / 2;
}

// When the mean says one thing and the pairs do not, there are as many pairs again.
bool guard::decided(const trial &trial) const {
    const uint32_t pairs = trial.windows / 2;
    if (pairs >= pairs_usual) {
        const auto [least, most] = std::minmax(trial.cost[0], trial.cost[1]);
        const bool tie = most <= (1 + rules_.margin) * least;
        return pairs == 2 * pairs_usual || tie || clearly_slower(trial, 0) ||
               clearly_slower(trial, 1);
    }
    if (pairs < 2 || (trial.slower[0] != pairs && trial.slower[1] != pairs)) return false;
    const auto [lower, higher] = std::minmax(trial.cost[0], trial.cost[1]);
    return higher >= plain_ratio * lower;
}

void guard::decide(size_t phase) {
    trial &trial = trials_[phase];
    state &arm_state = states_[phase][trial.tried_arm];
    const bool stays =
        arm_state.chosen_on && !clearly_slower(trial, 1) && trial.tried_arm != substitution;
    const bool next = clearly_slower(trial, 0) || stays;
    arm_state.on_ns = trial.cost[1] / trial.tokens;
    arm_state.off_ns = trial.cost[0] / trial.tokens;
    ++arm_state.trials;
    if (next != arm_state.chosen_on) {
        arm_state.chosen_on = next;
        arm_state.since_token = tokens_;
        arm_state.standing_factor = 1;
        ++changes_;
        // The gain of the other arms may be different now. They are tried again only after the
        // first change: more would never come to rest.
        if (arm_state.changes++ == 0)
            for (state &affected : states_[phase])
                affected.due_pass = std::min(affected.due_pass, passes_[phase] + window(phase));
    } else if (arm_state.trials > 1) {
        arm_state.standing_factor = std::min(2 * arm_state.standing_factor, standing_factor_max);
    }
    arm_state.early_due_pass = passes_[phase] + arm_state.standing_factor * trial_passes(phase);
    arm_state.due_pass = passes_[phase] + uint64_t{standing_trials} * arm_state.standing_factor *
                                              trial_passes(phase);
    standing_[phase] = {};
    trial = {};
}

std::vector<guard_arm> guard::report() const {
    std::vector<guard_arm> reports;
    if (!rules_.active) return reports;
    for (const size_t phase : {size_t{MOORAGE_DECODE}, size_t{MOORAGE_PREFILL}}) {
        if (passes_[phase] == 0) continue;
        for (size_t which = 0; which < arms; ++which) {
            const state &arm_state = states_[phase][which];
            if (!arm_state.available) continue;
            guard_arm arm;
            arm.name = arm_names[which];
            arm.phase = phase == MOORAGE_DECODE ? "decode" : "prefill";
            arm.enabled = arm_state.chosen_on;
            arm.on_ns = arm_state.on_ns;
            arm.off_ns = arm_state.off_ns;
            arm.since_token = arm_state.since_token;
            arm.trials = arm_state.trials;
            arm.changes = arm_state.changes;
            arm.off_tokens = arm_state.off_tokens;
            arm.as_configured =
                arm_state.held && rules_.prefill_keeps && which == cache && phase == 0;
            if (arm.as_configured)
                arm.reason = "[memory] prefill_displaces = false";
            else if (arm_state.held)
                arm.reason = copies_nothing;
            else if (arm_state.trials == 0)
                arm.reason =
                    arm_state.has_effect ? "the run was too short for a trial" : did_nothing[which];
            reports.push_back(std::move(arm));
        }
    }
    return reports;
}

}  // namespace moorage::core
