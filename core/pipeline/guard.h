// guard.h - keeps a run from being slower than without its policies. Measures the gain of prefetch,
// cache and substitution, and switches off what loses.
//
// An arm is one of the three in one phase. At most one arm of a phase is on trial. A trial has
// windows of passes, with the arm as it stands and switched, in pairs (A B, B A, A B, ...). So a
// drift affects both sides equally. The first quarter of a window is not counted, because caches
// and predictions settle. Costs are times per token of the paired windows. The arm changes if the
// other side was faster by more than a margin, in the mean and in most pairs. An arm that changes
// the model's choices has to win to stay. A decision stands for the length of many trials, longer
// each time it is confirmed. Then it is tried again, or sooner if the chosen side has come to cost
// more than the other side did. Everything depends on the times that the caller gives, so equal
// runs in virtual time decide equally.
//
//   guard_.begin(pass.phase);                      // before a pass
//   if (guard_.is_on(guard::prefetch)) ...         // during it
//   guard_.end(tokens, taken_ns);                  // after it
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/report/guarding.h"
#include "moorage/base.h"

namespace moorage::core {

struct guard_rules {
    bool active = false;         // without it everything is on, except what is held
    uint32_t window = 32;        // passes of a window of decoding; >= 4
    double margin = 0.02;        // by how much one side has to be faster
    bool unified = false;        // loads copy nothing
    bool prefill_keeps = false;  // [memory] prefill_displaces = false: no trial, off in prefill
};

class guard {
public:
    enum arm : uint8_t { cache, prefetch, substitution };  // in the order of their trials
    static constexpr size_t arms = 3, phases = 2;

    // pairs_usual: pairs of a trial, each of two windows. There are as many again if mean and pairs
    // do not agree. standing_trials, standing_factor_max: how long a decision stands, counted in
    // such trials.
    static constexpr uint32_t pairs_usual = 4, standing_trials = 20, standing_factor_max = 8;
    // Passes of a window of prefill, which has many tokens.
    static constexpr uint32_t prefill_window = 2;
    // After two pairs that agree, a trial ends early if one side takes so many times the other.
    static constexpr double plain_ratio = 1.25;
    // A window ends early if it has taken so many times the other side's time for a whole window.
    static constexpr double hopeless_ratio = 3;

    // `available`: whether the run has the arm at all.
    guard(const guard_rules &rules, std::array<bool, arms> available);

    // A pass of the phase begins. [step]
    void begin(int32_t phase);
    bool is_on(arm which) const { return arm_on_[which]; }
    // The arm does something in the pass under way. So it is worth a trial from now on. [step]
    void note_effect(arm which) { states_[phase_][which].has_effect = true; }
    // The pass of `tokens` tokens took `ns`. [step]
    void end(uint64_t tokens, uint64_t ns);

    // How often an arm was switched off or on again.
    uint64_t changes() const { return changes_; }
    // All arms that the run has, in the phases that it had. [control]
    std::vector<guard_arm> report() const;

private:
    struct tally {
        std::array<uint64_t, phases> tokens{}, ns{};
        void add(size_t phase, uint64_t its_tokens, uint64_t its_ns) {
            tokens[phase] += its_tokens;
            ns[phase] += its_ns;
        }
    };
    struct state {
        bool available = false, held = false;  // held: stays as it is, without a trial
        bool chosen_on = true, has_effect = false;
        uint64_t due_pass = 0;        // pass of the phase from which on it may be tried
        uint64_t early_due_pass = 0;  // the same, if the chosen side has come to cost more than the
                                      // other did
        uint32_t standing_factor = 1;  // times the usual standing
        double on_ns = 0, off_ns = 0;
        uint64_t since_token = 0, trials = 0, changes = 0, off_tokens = 0;
    };
    struct trial {
        bool runs = false;
        arm tried_arm = cache;
        uint32_t windows = 0;              // closed
        uint32_t passes = 0;               // of the window under way
        tally counted, total;              // of the window under way; total: with the part that
                                           // is not counted
        std::array<tally, 2> closed;       // of the pair, [off, on]
        std::array<double, 2> usual_ns{};  // last closed window, per pass; 0: none yet
        // Sums over the pairs, [off, on].
        std::array<double, 2> cost{};
        std::array<uint32_t, 2> slower{};
        double tokens = 0;
        uint64_t changes_at_begin = 0;  // changes of the run when the trial began
    };

    uint32_t window(size_t phase) const { return phase == 0 ? prefill_window : rules_.window; }
    uint64_t trial_passes(size_t phase) const { return 2 * uint64_t{pairs_usual} * window(phase); }
    uint32_t uncounted(size_t phase) const { return phase == 0 ? 1 : (rules_.window + 3) / 4; }
    // Loads in prefill displace experts, and this shows in decoding, too.
    static bool shows_in_both(size_t phase, arm arm_of_trial) {
        return phase == 0 && arm_of_trial == cache;
    }
    bool is_arm_on(const trial &trial, size_t phase) const;
    bool window_full(size_t phase) const;
    void begin_trial(size_t phase);
    void check_standing(size_t phase, uint64_t tokens, uint64_t ns);
    void close_window(size_t phase);
    void close_pair(trial &trial);
    // Whether side `side` is slower beyond the margin and in most pairs.
    bool clearly_slower(const trial &trial, size_t side) const;
    bool decided(const trial &trial) const;
    void decide(size_t phase);

    const guard_rules rules_;
    std::array<std::array<state, arms>, phases> states_{};
    std::array<trial, phases> trials_{};
    std::array<uint64_t, phases> passes_{};
    // Passes without a trial, since the last trial ended or they were last checked.
    struct standing {
        uint64_t passes = 0, tokens = 0, ns = 0;
    };
    std::array<standing, phases> standing_{};
    std::array<bool, arms> arm_on_{true, true, true};
    size_t phase_ = 0;
    uint64_t tokens_ = 0, changes_ = 0;
};

}  // namespace moorage::core
