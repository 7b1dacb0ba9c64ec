// shape_config.cpp - writes TOML tables as JSON, with the sizes that a shape file gives only once.
#include "core/config/shape_config.h"

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/profile_file.h"

namespace moorage::core {

namespace {

json json_of_node(const node &value) {
    switch (value.type) {
        case node_type::boolean:
            return value.boolean;
        case node_type::integer:
            return value.integer;
        case node_type::number:
            return value.number;
        case node_type::text:
        case node_type::date:
            return value.text;
        case node_type::list: {
            json list = json::array();
            for (const node &item : value.items) list.push_back(json_of_node(item));
            return list;
        }
        case node_type::table: {
            json object = json::object();
            for (const entry &field : value.entries) object[field.key] = json_of_node(field.value);
            return object;
        }
    }
    return nullptr;
}

}  // namespace

std::string json_text_of(const node &table, const model_shape &shape) {
    json object = json_of_node(table);
    const auto add = [&](const char *key, uint32_t value) {
        if (!object.contains(key)) object[key] = value;
    };
    add("num_hidden_layers", shape.layers);
    add("hidden_size", shape.hidden);
    add("vocab_size", shape.vocabulary);
    add("num_experts", shape.experts);
    add("num_experts_per_tok", shape.top_k);
    // A model without dense layers uses this name for the size of its experts.
    add("intermediate_size", shape.moe_intermediate);
    add("moe_intermediate_size", shape.moe_intermediate);
    return json_line(object);
}

result<std::string> load_shape_config(const std::string &name, const std::filesystem::path &base) {
    const result<std::filesystem::path> file = find_shape(name, base);
    if (!file) return file.failure();
    const result<std::string> text = read_document(*file);
    if (!text) return text.failure();
    const result<shape_file> parsed = parse_shape(*text, file->string());
    if (!parsed) return parsed.failure();
    if (parsed->config.empty())
        return error{format("{}: has no table [config], which a model with random weights needs",
                            file->string()),
                     true};
    return parsed->config;
}

}  // namespace moorage::core
