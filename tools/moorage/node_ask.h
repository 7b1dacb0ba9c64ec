// node_ask.h - a command's prompts, asked of a node that runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/pipeline/run.h"
#include "core/report/report.h"

namespace moorage::tool {

// What came of it, and a line on it.
struct node_answers {
    core::text_report text;
    std::string line;  // "20 tokens written by device, first after 16.1 ms, then 197 tokens/s"
};

// Asks the node of `server` for config.prompts, all at once, and hands on what it writes to the
// first as it comes; `stop` is asked now and then. Tokens are chosen as the node's own [source]
// says; a text ends where that says, and at config.stop. An error where one is not answered: what
// the home says, or that it is not there. Requires: config is of node_config_of(), with prompts;
// shared.scan() went well.
core::result<node_answers> ask_node(const core::run_config &config, const std::string &server,
                                    core::run_resources &shared,
                                    const std::function<void(int32_t id)> &on_token,
                                    const std::function<bool()> &stop);

}  // namespace moorage::tool
