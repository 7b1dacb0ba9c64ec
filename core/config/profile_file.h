// profile_file.h - the text of one profile or shape file, checked figure by figure.
//
// Each file is one flat list of required keys, and a table [sources] with a text for every figure.
// The text begins with its mark: [S] stated by a source, [M] measured, [D] derived, [2]
// second-hand, [R] recalled, [G] guess. Figures that only some machines need may be omitted. A file
// of kind "machine" holds the tables [device], [link] and [node], and may hold [disk]. Each is such
// a list with its own sources.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/config/hardware.h"

namespace moorage::core {

// `name` stands for the file in messages.
result<device_profile> parse_device(std::string_view text, std::string_view name);
result<link_profile> parse_link(std::string_view text, std::string_view name);
result<node_profile> parse_node(std::string_view text, std::string_view name);
result<disk_profile> parse_disk(std::string_view text, std::string_view name);
result<engine_profile> parse_engine(std::string_view text, std::string_view name);

struct shape_file {
    model_shape shape;
    std::vector<std::string> aliases;  // further names, for example from a trace's metadata
    std::string config;                // the table [config] as JSON (shape_config.h); empty: none
};
// The table [config] is optional; it needs a source, too. Also checks that sizes agree: an expert's
// bytes with its matrices, and the bytes read for every token with all bytes except the input
// embedding.
result<shape_file> parse_shape(std::string_view text, std::string_view name);

}  // namespace moorage::core
