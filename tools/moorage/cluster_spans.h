// cluster_spans.h - moorage cluster timeline: recent work of all nodes of a cluster, on one clock.
#pragma once

#include <cstdint>
#include <string>

#include "tools/moorage/settings.h"

namespace moorage::tool {

struct spans_arguments {
    std::string cluster, out_file, home;
    uint64_t request = 0;
    setting_options settings;
};

// Asks every node for its spans and draws them. Returns the exit code.
int draw_spans(const spans_arguments &arguments);

}  // namespace moorage::tool
