// stop_reader.cpp - reads a flag, a text, an id, or a list of them.
#include "core/config/stop_reader.h"

#include <utility>

#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr size_t stops_max = 256, stop_bytes_max = 4096;

// "" if the value is sound, otherwise what is wrong with it.
std::string add_stop(const node &value, stop_config &stop) {
    switch (value.type) {
        case node_type::boolean:
            stop.at_model_ends = value.boolean;
            return "";
        case node_type::integer:
            if (value.integer < 0 || value.integer > INT32_MAX)
                return format("a token id is a whole number from 0 to {}", INT32_MAX);
            stop.ids.push_back(static_cast<int32_t>(value.integer));
            return "";
        case node_type::text:
            if (value.text.empty()) return "a text to stop at is not empty";
            if (value.text.size() > stop_bytes_max)
                return format("a text to stop at has at most {} bytes", stop_bytes_max);
            stop.texts.push_back(value.text);
            return "";
        default:
            return "true, false, a text, a token id or a list of them is needed";
    }
}

}  // namespace

void read_stop(section_reader &source, stop_config &target) {
    const config_value *const found = source.find("stop");
    if (!found || source.failed()) return;
    stop_config stop;
    const bool is_list = found->value.type == node_type::list;
    const std::vector<node> values = is_list ? found->value.items : std::vector{found->value};
    if (values.size() > stops_max)
        return source.fail(*found, format("at most {} texts and ids are of use", stops_max));
    for (const node &value : values)
        if (const std::string wrong = add_stop(value, stop); !wrong.empty())
            return source.fail(*found,
                               is_list ? format("it holds {}; {}", describe(value), wrong) : wrong);
    target = std::move(stop);
}

}  // namespace moorage::core
