// model_shape.cpp - makes a file of configs/models from the headers of a model's files.
#include "tools/moorage/model_shape.h"

#include <filesystem>
#include <memory>
#include <string>

#include "core/base/text.h"
#include "core/config/profile_file.h"
#include "core/config/shape_writer.h"
#include "core/model/gguf.h"
#include "core/model/gguf_shape.h"
#include "core/model/model.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct model_shape_arguments {
    std::string directory, out_file = "-";
};

// Products by weights for a token in a layer with experts (model_shape::products).
uint32_t products_of(const model_config &config) {
    const attention_config &attention = config.attention;
    constexpr uint32_t output_and_router = 2, mlp = 3, latent_keys_values = 3;
    const uint32_t queries = attention.query_lora_rank != 0 ? 2 : 1;
    const uint32_t keys_values = attention.kind == attention_kind::latent ? latent_keys_values : 2;
    return queries + keys_values + output_and_router + mlp +
           (config.shared_intermediate != 0 ? mlp : 0);
}

// Operations of a token with one cached token: scores and sums, a multiplication and an addition
// each. Latent attention works on the compressed vector.
double context_operations_of(const model_config &config) {
    const attention_config &attention = config.attention;
    const double width = attention.kind == attention_kind::latent
                             ? 2.0 * attention.kv_lora_rank + config.rope.dimensions
                             : double(attention.head_dim) + attention.value_dim;
    return 2 * attention.heads * width;
}

model_shape with_formats(const model &source_model, model_shape shape) {
    const model_config &config = source_model.config();
    const model_sizes &sizes = source_model.sizes();
    const double vocabulary = static_cast<double>(config.vocabulary) * config.hidden;
    const double experts = static_cast<double>(shape.moe_layers) * shape.experts * shape.matrices *
                           config.hidden * config.moe_intermediate;
    const double dense_weights = static_cast<double>(sizes.parameters) - experts -
                                 vocabulary * (config.tied_embedding ? 1 : 2);
    const auto dense_bytes = static_cast<double>(sizes.shared_bytes + sizes.attention_bytes +
                                                 sizes.dense_bytes + sizes.router_bytes);
    const auto bits = [](uint64_t bytes, double weights) {
        return 8 * static_cast<double>(bytes) / weights;
    };
    // A mean, because formats may differ from layer to layer.
    const uint64_t count = uint64_t{shape.moe_layers} * shape.experts;
    shape.expert_bytes = (sizes.experts_bytes + count / 2) / count;
    shape.expert_bits = bits(sizes.experts_bytes, experts);
    shape.weight_bytes = shape.expert_bits / 8;
    shape.embedding_bits = bits(sizes.embedding_bytes, vocabulary);
    shape.head_bits =
        config.tied_embedding ? shape.embedding_bits : bits(sizes.head_bytes, vocabulary);
    if (dense_weights > 0) shape.dense_bits = 8 * dense_bytes / dense_weights;
    shape.products = products_of(config);
    shape.context_operations = context_operations_of(config);
    return shape;
}

result<model_shape> shape_of_directory(const std::string &directory) {
    const auto opened = open_model(directory);
    if (!opened) return opened.failure();
    const model &source_model = **opened;
    const std::filesystem::path path = source_model.directory().lexically_normal();
    const std::string name = (path.has_filename() ? path : path.parent_path()).filename();
    return with_formats(source_model, shape_of(source_model, name));
}

int write_shape(const model_shape_arguments &arguments) {
    const bool one_file = is_gguf(arguments.directory);
    const auto shape =
        one_file ? gguf_shape(arguments.directory) : shape_of_directory(arguments.directory);
    if (!shape) return fail(shape.failure());
    const std::string text =
        to_toml(*shape, (one_file ? "[S] metadata of " : "[S] config.json of ") + shape->name,
                "[D] counted from the headers of its weights; KV cache at 2 bytes a value");
    // Reads the text back, so that the written file is sure to load.
    if (const auto read = parse_shape(text, shape->name); !read) return fail(read.failure());
    if (const status done = write_text(arguments.out_file, text); !done)
        return fail(done.failure());
    return exit_ok;
}

}  // namespace

command install_model_shape(parser &model) {
    parser *sub =
        model.add_subcommand("shape", "write a model's geometry and sizes as a shape file");
    const auto arguments = std::make_shared<model_shape_arguments>();
    sub->add_option("model", arguments->directory, "model directory or GGUF file")->required();
    sub->add_option("--out", arguments->out_file, "file to write; default: standard output")
        ->type_name("FILE.toml");
    sub->footer(
        "The file gives the bits of a weight for experts, dense part, head and embedding. "
        "`[source] shape`\n"
        "takes it. Only headers are read; weights stay on disk. A GGUF file may have any "
        "architecture and any\n"
        "formats, and its weights may be missing.");
    return [arguments] { return write_shape(*arguments); };
}

}  // namespace moorage::tool
