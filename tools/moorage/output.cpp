// output.cpp - files and settings, as every command writes and reads them.
#include "tools/moorage/output.h"

#include <span>

#include "core/base/atomic_file.h"

namespace moorage::tool {

using namespace moorage::core;

status write_text(const std::string &file, const std::string &text) {
    if (file == "-") {
        if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
            std::fflush(stdout) == 0)
            return success();
        return error{"standard output cannot be written"};
    }
    auto made = atomic_file::create(file);
    if (!made) return made.failure();
    made->write(std::as_bytes(std::span(text)));
    return made->commit();
}

status write_json(const std::string &file, const json &figures) {
    return write_text(file, figures.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

result<std::vector<override_value>> read_overrides(const std::vector<std::string> &texts) {
    std::vector<override_value> all;
    for (const std::string &text : texts) {
        auto one = parse_override(text);
        if (!one) return one.failure();
        all.push_back(std::move(one).value());
    }
    return all;
}

std::vector<std::vector<override_value>> combinations(const std::vector<sweep> &sweeps) {
    std::vector<std::vector<override_value>> all{{}};
    for (const sweep &one : sweeps) {
        std::vector<std::vector<override_value>> longer;
        for (const auto &start : all) {
            for (const std::string &value : one.values) {
                longer.push_back(start);
                longer.back().push_back({one.section, one.key, value});
            }
        }
        all = std::move(longer);
    }
    return all;
}

}  // namespace moorage::tool
