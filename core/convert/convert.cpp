// convert.cpp - decides the kind of output file and whether it can have the format.
#include "core/convert/convert.h"

#include <algorithm>
#include <new>

#include "core/base/text.h"
#include "core/convert/to_directory.h"
#include "core/convert/to_gguf.h"

namespace moorage::core {

namespace {

constexpr weight_type directory_types[] = {weight_type::bf16, weight_type::f16, weight_type::f32,
                                           weight_type::fp8};

std::vector<std::string> names_for(bool gguf) {
    std::vector<std::string> names;
    if (gguf)
        for (const recipe &one : recipes()) names.emplace_back(one.name);
    else
        for (const weight_type one : directory_types) names.emplace_back(name_of(one));
    return names;
}

result<convert_report> convert(const convert_request &what, thread_pool &pool) {
    const bool gguf = what.out.extension() == ".gguf";
    if (const recipe *found = find_recipe(what.format); gguf && found != nullptr) {
        recipe how = *found;
        if (what.pure) how.mix = mixture::none;
        return convert_to_gguf(what, how, pool);
    }
    const auto *found = std::ranges::find(directory_types, what.format,
                                          [](weight_type one) { return name_of(one); });
    if (!gguf && found != std::end(directory_types))
        return convert_to_directory(what, *found, pool);
    const std::vector<std::string> names = names_for(gguf);
    return error{
        format("format {}: {} can have {}{}", what.format, gguf ? "a GGUF file" : "a directory",
               fmt::join(names, ", "), did_you_mean(what.format, names)),
        true};
}

}  // namespace

result<convert_report> convert_model(const convert_request &what, thread_pool &pool) {
    try {
        return convert(what, pool);
    } catch (const std::bad_alloc &) {
        return error{format("{}: not enough memory to convert it", what.in.string())};
    }
}

}  // namespace moorage::core
