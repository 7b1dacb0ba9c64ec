// help_keys.h - explains keys of configurations, from the parser's own table.
#pragma once

#include <string>
#include <vector>

namespace moorage::tool {

// All tables and keys, in lines, or as docs/configuration.md.
std::string text_of_keys();
std::string markdown_of_keys();
// The units that numbers may have.
std::string text_of_units();

// Each table, key and parameter of a policy that the topic names; "" if there is none. Topics are
// like "memory", "memory.experts", "experts" or "cache.lfu.half_life".
std::string text_of_topic(const std::string &topic);
// The known topics, for hints.
std::vector<std::string> key_topics();

}  // namespace moorage::tool
