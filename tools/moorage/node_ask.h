// node_ask.h - sends a command's prompts to a running node.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/pipeline/run.h"
#include "core/report/report.h"

namespace moorage::tool {

// The answers, and a line about them.
struct node_answers {
    core::text_report text;
    std::string line;  // "20 tokens written by device, first after 16.1 ms, then 197 tokens/s"
};

// Asks the node of `server` for config.prompts, all at once. Passes on the text of the first prompt
// while it arrives. Calls `stop` now and then. The node chooses tokens by its own [source]. A text
// ends by those rules, and at config.stop. Fails if a prompt is not answered, with the home's text
// or because it is not there. Requires: config from node_config_of(), with prompts, and a
// successful shared.scan().
core::result<node_answers> ask_node(const core::run_config &config, const std::string &server,
                                    core::run_resources &shared,
                                    const std::function<void(int32_t id)> &on_token,
                                    const std::function<bool()> &stop);

}  // namespace moorage::tool
