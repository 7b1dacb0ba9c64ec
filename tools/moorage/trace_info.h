// trace_info.h - the output of `moorage trace info`, as text of 80 columns and as JSON.
#pragma once

#include <string>

#include "core/base/json_fwd.h"
#include "core/base/safetensors.h"
#include "core/source/trace.h"
#include "core/source/trace_stats.h"

namespace moorage::tool {

struct trace_summary {
    const core::trace &trace;
    core::safetensors header;
    core::trace_statistics statistics;
};

std::string text_of(const trace_summary &summary);
core::json json_of(const trace_summary &summary);

}  // namespace moorage::tool
