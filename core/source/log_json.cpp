// log_json.cpp - routing logs as JSON lines: an object per token, or per token and layer.
#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/source/log_reader.h"

namespace moorage::core {

namespace {

error wrong_value(const std::string &key, const json &value, const char *wanted) {
    return {format("column {}: {} is not {}", key, printable(json_line(value)), wanted)};
}

result<uint64_t> whole_number(const std::string &key, const json &value) {
    if (!value.is_number_unsigned()) return wrong_value(key, value, "a whole number from 0");
    return value.get<uint64_t>();
}

status read_experts(const std::string &key, const json &list, std::vector<uint64_t> &experts) {
    experts.clear();
    if (!list.is_array()) return wrong_value(key, list, "a list of expert ids");
    for (const json &entry : list) {
        const result<uint64_t> id = whole_number(format("{}[{}]", key, experts.size()), entry);
        if (!id) return id.failure();
        experts.push_back(*id);
    }
    return success();
}

status read_weights(const std::string &key, const json &list, std::vector<double> &weights) {
    weights.clear();
    if (!list.is_array()) return wrong_value(key, list, "a list of weights");
    for (const json &entry : list) {
        if (!entry.is_number())
            return wrong_value(format("{}[{}]", key, weights.size()), entry, "a number");
        weights.push_back(entry.get<double>());
    }
    if (weights.empty()) return wrong_value(key, list, "a list with a weight for each expert");
    return success();
}

// Reads everything but layer, experts and weights.
status read_common(const json &object, log_row &row) {
    if (const auto found = object.find("request"); found != object.end())
        row.request = found->is_string()
                          ? found->get<std::string>()
                          : found->dump(-1, ' ', false, json::error_handler_t::replace);
    if (const auto found = object.find("token"); found != object.end()) {
        const result<uint64_t> token = whole_number("token", *found);
        if (!token) return token.failure();
        row.token = *token;
    }
    if (const auto found = object.find("token_id"); found != object.end()) {
        if (!found->is_number_integer()) return wrong_value("token_id", *found, "a whole number");
        if (found->is_number_unsigned() && found->get<uint64_t>() > INT64_MAX)
            return wrong_value("token_id", *found, "below 2^31");
        row.token_id = found->get<int64_t>();
    }
    return success();
}

constexpr const char *some_experts = "a list with at least one item";
bool has_experts(const json &experts) { return experts.is_array() && !experts.empty(); }

// Adds an object with the lists of all layers.
status add_token(const json &experts, const json *weights, log_row &row, log_builder &builder) {
    if (weights != nullptr && (!weights->is_array() || weights->size() != experts.size()))
        return wrong_value("weights", *weights, "a list as long as experts");
    for (size_t layer = 0; layer < experts.size(); ++layer) {
        row.layer = layer;
        row.experts.clear(), row.weights.clear();
        if (!builder.keeps(layer)) {
            if (const status added = builder.add(row, layer == 0); !added) return added;
            continue;
        }
        const std::string place = format("[{}]", layer);
        if (const status read = read_experts("experts" + place, experts[layer], row.experts); !read)
            return read;
        if (weights != nullptr)
            if (const status read = read_weights("weights" + place, (*weights)[layer], row.weights);
                !read)
                return read;
        if (const status added = builder.add(row, layer == 0); !added) return added;
    }
    return success();
}

// Adds an object with the list of one layer.
status add_layer(const json &object, const json &experts, const json *weights, log_row &row,
                 log_builder &builder) {
    const auto layer = object.find("layer");
    if (layer == object.end())
        return error{"key layer is missing; without it experts is a list of lists"};
    if (!row.token) return error{"key token is missing; objects with a layer need it"};
    const result<uint64_t> number = whole_number("layer", *layer);
    if (!number) return number.failure();
    row.layer = *number;
    if (!builder.keeps(row.layer)) return builder.add(row, false);
    if (!has_experts(experts)) return wrong_value("experts", experts, some_experts);
    if (const status read = read_experts("experts", experts, row.experts); !read) return read;
    if (weights != nullptr)
        if (const status read = read_weights("weights", *weights, row.weights); !read) return read;
    return builder.add(row, false);
}

constexpr const char *known_keys[] = {"request", "token",   "token_id",
                                      "layer",   "experts", "weights"};
constexpr size_t ignored_shown_max = 10;

void note_ignored(const json &object, std::set<std::string> &ignored) {
    for (const auto &[key, value] : object.items())
        if (std::ranges::find(known_keys, key) == std::end(known_keys) &&
            ignored.size() < ignored_shown_max)
            ignored.insert(printable(key));
}

status add_line(const std::string &line, log_builder &builder, std::set<std::string> &ignored) {
    const result<json> parsed = read_json(line);
    if (!parsed)
        return error{
            format("not valid JSON: {}; the line is {}", parsed.failure().text, printable(line))};
    const json &object = *parsed;
    if (!object.is_object()) return error{format("{} is not an object", printable(line))};
    note_ignored(object, ignored);
    log_row row;
    if (const status read = read_common(object, row); !read) return read;
    const auto experts = object.find("experts"), weights = object.find("weights");
    if (experts == object.end()) return error{"key experts is missing"};
    // An object of one layer may omit its experts if the layer is not kept.
    if (!object.contains("layer") && !has_experts(*experts))
        return wrong_value("experts", *experts, some_experts);
    const json *weight_list = weights == object.end() ? nullptr : &*weights;
    // In a list of lists, layers without experts may be null.
    const bool of_token =
        experts->is_array() &&
        std::ranges::any_of(*experts, [](const json &list) { return list.is_array(); });
    return of_token ? add_token(*experts, weight_list, row, builder)
                    : add_layer(object, *experts, weight_list, row, builder);
}

}  // namespace

status read_json_lines(line_reader &lines, log_builder &builder) {
    std::string line;
    std::set<std::string> ignored;
    for (;;) {
        const result<bool> has_line = lines.next(line);
        if (!has_line) return has_line.failure();
        if (!*has_line) break;
        if (const status added = add_line(line, builder, ignored); !added) return added;
    }
    if (!ignored.empty())
        log_warning(
            format("keys without a meaning here: {}",
                   listed(std::vector<std::string>(ignored.begin(), ignored.end()), "and")));
    return success();
}

}  // namespace moorage::core
