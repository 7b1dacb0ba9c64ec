// rope_reader.cpp - reads rope_theta, rope_scaling and rope_parameters for every kind of scaling.
#include "core/model/rope_reader.h"

#include <cmath>
#include <utility>

#include "core/base/json.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr double theta_max = 1e15, factor_max = 1e6;
constexpr uint32_t positions_max = 1u << 28;

constexpr std::pair<std::string_view, rope_kind> kinds[] = {
    {"default", rope_kind::plain}, {"linear", rope_kind::linear}, {"dynamic", rope_kind::dynamic},
    {"yarn", rope_kind::yarn},     {"llama3", rope_kind::llama3}, {"longrope", rope_kind::longrope},
    {"su", rope_kind::longrope},  // its name in the first Phi-3 files
};

// The object under a key. If it is given per layer type, all must be equal. Null: none.
const json *parameters_of(config_reader &reader, const char *key) {
    const json *found = reader.object({key});
    if (found == nullptr || found->empty()) return nullptr;
    const json *first = nullptr;
    for (const auto &[type, value] : found->items()) {
        if (!value.is_object()) continue;
        if (first != nullptr && *first != value)
            reader.fail(key, format("differs between layer types ({}); all the same is supported",
                                    printable(type)));
        first = &value;
    }
    return first != nullptr ? first : found;
}

rope_kind kind_of(config_reader &reader) {
    const std::string name = reader.text({"rope_type", "type"}, "default");
    for (const auto &[known, kind] : kinds)
        if (name == known) return kind;
    reader.fail("rope_type", format("is {}; default, linear, dynamic, yarn, llama3 and longrope "
                                    "are supported",
                                    printable(name)));
    return rope_kind::plain;
}

void read_yarn(config_reader &scaling, rope_config &rope) {
    rope.beta_fast = scaling.number({"beta_fast"}, 1e-3, 1e6, 32.0);
    rope.beta_slow = scaling.number({"beta_slow"}, 1e-3, 1e6, 1.0);
    rope.truncate = scaling.flag({"truncate"}, true);
    rope.mscale = scaling.number({"mscale"}, 0, 1e3, 0.0);
    rope.mscale_all = scaling.number({"mscale_all_dim"}, 0, 1e3, 0.0);
    rope.attention_factor = scaling.number({"attention_factor"}, 0, 1e3, 0.0);
}

void read_longrope(config_reader &scaling, rope_config &rope) {
    const size_t pairs = rope.dimensions / 2;
    rope.short_factor = scaling.numbers({"short_factor"}, 1e-6, factor_max, pairs);
    rope.long_factor = scaling.numbers({"long_factor"}, 1e-6, factor_max, pairs);
    for (const auto &[key, list] : {std::pair("short_factor", &rope.short_factor),
                                    std::pair("long_factor", &rope.long_factor)})
        if (list->size() != pairs)
            scaling.fail(key, format("has {} numbers; one for each of the {} rotated pairs is "
                                     "needed",
                                     list->size(), pairs));
    rope.attention_factor = scaling.number({"attention_factor"}, 0, 1e3, 0.0);
    // Phi-3.5-MoE gives the factor itself: one for short texts and one for long ones.
    if (!scaling.has({"short_mscale"}) && !scaling.has({"long_mscale"})) return;
    rope.attention_factor = scaling.number({"short_mscale"}, 1e-3, 1e3);
    if (scaling.number({"long_mscale"}, 1e-3, 1e3) != rope.attention_factor)
        scaling.fail("long_mscale", "differs from short_mscale; only equal ones are supported");
}

void read_scaling(config_reader &scaling, rope_config &rope, uint32_t positions) {
    if (scaling.has({"mrope_section"}))
        scaling.fail("mrope_section",
                     "is given; positions in several dimensions are not supported");
    if (const double alpha = scaling.number({"alpha"}, 0, factor_max, 0.0); alpha > 1)
        scaling.fail("alpha", format("is {:g}; a base scaled by it is not supported", alpha));
    rope.kind = kind_of(scaling);
    if (rope.kind == rope_kind::plain) {
        // Without a type, these keys would be ignored.
        for (const char *key : {"factor", "short_factor", "long_factor"})
            if (!scaling.has({"rope_type", "type"}) && scaling.has({key}))
                scaling.fail(key, "is given without a rope_type; name the type that it is of");
        return;
    }
    rope.original_positions = scaling.count({"original_max_position_embeddings"}, 1, positions_max,
                                            rope.original_positions);
    // Yarn and longrope may omit the factor; it is then the ratio of the lengths after and before.
    const double ratio = static_cast<double>(positions) / rope.original_positions;
    const bool derived = rope.kind == rope_kind::yarn || rope.kind == rope_kind::longrope;
    rope.factor = scaling.number({"factor"}, 1e-3, factor_max,
                                 derived ? std::optional<double>(ratio) : std::nullopt);
    if (rope.kind == rope_kind::yarn) read_yarn(scaling, rope);
    if (rope.kind == rope_kind::longrope) read_longrope(scaling, rope);
    if (rope.kind == rope_kind::dynamic && rope.dimensions <= 2)
        scaling.fail("rope_type", "is dynamic, which needs more than 2 rotated dimensions");
    if (rope.kind != rope_kind::llama3) return;
    rope.low_frequency_factor = scaling.number({"low_freq_factor"}, 1e-6, factor_max);
    rope.high_frequency_factor = scaling.number({"high_freq_factor"}, 1e-6, factor_max);
    if (rope.high_frequency_factor <= rope.low_frequency_factor)
        scaling.fail("high_freq_factor",
                     format("is {:g}; more than low_freq_factor, {:g}, is "
                            "needed",
                            rope.high_frequency_factor, rope.low_frequency_factor));
}

}  // namespace

double yarn_mscale(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

void read_rope(config_reader &reader, const architecture &arch, model_config &config) {
    rope_config &rope = config.rope;
    // rope_scaling, which model cards tell users to add, replaces rope_parameters, as in
    // transformers.
    const json *parameters = parameters_of(reader, "rope_parameters"),
               *scaling_json = parameters_of(reader, "rope_scaling");
    const json none = json::object();
    if (parameters == nullptr) parameters = &none;
    config_reader scaling(scaling_json != nullptr ? *scaling_json : *parameters,
                          reader.name() + ": rope");
    config_reader parameters_reader(*parameters, reader.name() + ": rope");

    // If a key is missing there, transformers uses the architecture's default. Here the model's
    // value stays.
    const auto reader_with = [&](const char *key) -> config_reader & {
        for (config_reader *candidate : {&scaling, &reader, &parameters_reader})
            if (candidate->has({key})) return *candidate;
        return reader;
    };
    rope.theta = reader_with("rope_theta").number({"rope_theta"}, 1.001, theta_max);
    if (config.attention.kind == attention_kind::grouped) {
        const double share = reader_with("partial_rotary_factor")
                                 .number({"partial_rotary_factor"}, 1e-3, 1, arch.partial_rotary);
        rope.dimensions = static_cast<uint32_t>(config.attention.head_dim * share);
        if (rope.dimensions < 2 || rope.dimensions % 2 != 0)
            reader.fail("partial_rotary_factor",
                        format("of {:g} rotates {} of {} dimensions; an even number is needed",
                               share, rope.dimensions, config.attention.head_dim));
    } else {
        rope.interleaved = reader.flag({"rope_interleave"}, arch.interleaved);
    }
    rope.original_positions =
        reader.count({"original_max_position_embeddings"}, 1, positions_max, config.positions_max);
    read_scaling(scaling, rope, config.positions_max);
    reader.adopt(scaling);
    reader.adopt(parameters_reader);
}

}  // namespace moorage::core
