// help_keys.h - what keys of configurations mean, from the table that the parser reads them by.
#pragma once

#include <string>
#include <vector>

namespace moorage::tool {

// All tables and keys, in lines, or as docs/configuration.md.
std::string text_of_keys();
std::string markdown_of_keys();
// The units that numbers may have.
std::string text_of_units();

// Of "memory", "memory.experts", "experts" or "cache.lfu.half_life": each table, key and parameter
// of a policy that the topic names; "" where there is none.
std::string text_of_topic(const std::string &topic);
// What may be asked for, for hints.
std::vector<std::string> key_topics();

}  // namespace moorage::tool
