// convert.cpp - decides the kind of output file and whether it can have the format.
#include "tools/convert/convert.h"

#include <algorithm>
#include <new>

#include "core/base/text.h"
#include "tools/convert/to_directory.h"
#include "tools/convert/to_gguf.h"

namespace moorage::core {

namespace {

constexpr weight_type directory_types[] = {weight_type::bf16, weight_type::f16, weight_type::f32,
                                           weight_type::fp8};

std::vector<std::string> names_for(bool gguf) {
    std::vector<std::string> names;
    if (gguf)
        for (const recipe &entry : recipes()) names.emplace_back(entry.name);
    else
        for (const weight_type type : directory_types) names.emplace_back(name_of(type));
    return names;
}

result<convert_report> convert(const convert_request &request, thread_pool &pool) {
    const bool gguf = request.target.extension() == ".gguf";
    if (const recipe *found = find_recipe(request.format); gguf && found != nullptr) {
        recipe chosen = *found;
        if (request.pure) chosen.mix = mixture::none;
        return convert_to_gguf(request, chosen, pool);
    }
    const auto *found = std::ranges::find(directory_types, request.format,
                                          [](weight_type type) { return name_of(type); });
    if (!gguf && found != std::end(directory_types))
        return convert_to_directory(request, *found, pool);
    const std::vector<std::string> names = names_for(gguf);
    return error{
        format("format {}: {} can have {}{}", request.format, gguf ? "a GGUF file" : "a directory",
               fmt::join(names, ", "), did_you_mean(request.format, names)),
        true};
}

}  // namespace

result<convert_report> convert_model(const convert_request &request, thread_pool &pool) {
    try {
        return convert(request, pool);
    } catch (const std::bad_alloc &) {
        return error{format("{}: not enough memory to convert it", request.source.string())};
    }
}

}  // namespace moorage::core
