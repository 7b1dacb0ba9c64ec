// time_parts.h - where the time of a run went, for people and programs: by causes that sum to the
// whole, and the work beside it.
#pragma once

#include <string>
#include <string_view>

#include "core/base/causes.h"
#include "core/base/json_fwd.h"
#include "core/report/report.h"

namespace moorage::core {

// In the order of causes_of().
inline constexpr const char *phase_names[] = {"prefill", "decode"};
// Times of a run's layers and of the time between them; [prefill, decode].
std::array<time_causes, 2> causes_of(const run_report &report);

std::string_view label_of(cause which);    // "computing", "link wait"
std::string_view meaning_of(cause which);  // of the device: "computes", "waits for transfers"
// If the CPU is the device, fast memory is slots in main memory.
bool has_gpu(const run_report &report);

// A table of causes, bars and shares, with a line of what was busy meanwhile. "": no causes.
std::string time_lines(const run_report &report);
// "the GPU computes 71.2 % of the time, waits for the link 20.1 % and ...": causes above half a
// percent, the largest first. "": nothing.
std::string time_sentence(const time_causes &sum, bool gpu);

// "computes 71.2 % and waits for transfers 28.8 %". "": nothing.
std::string shares_text(const time_causes &sum);
// The share of the time that the host was inside policies, and the calls with most of it. "": it
// was not measured.
std::string policy_lines(const run_report &report);

// {"prefill": {"compute_ms": ...}, "decode": {...}}: every cause.
json causes_json(const std::array<time_causes, 2> &phases);

}  // namespace moorage::core
