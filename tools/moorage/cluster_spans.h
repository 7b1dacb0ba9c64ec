// cluster_spans.h - moorage cluster timeline: what all nodes of a cluster did lately, on one clock.
#pragma once

#include <cstdint>
#include <string>

#include "tools/moorage/settings.h"

namespace moorage::tool {

struct spans_arguments {
    std::string cluster, out, home;
    uint64_t request = 0;
    setting_options settings;
};

// Asks every node for its spans and draws them. The exit code of the program.
int draw_spans(const spans_arguments &given);

}  // namespace moorage::tool
