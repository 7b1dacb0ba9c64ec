// sweeps.cpp - reads one text after the other.
#include "tools/moorage/sweeps.h"

#include <utility>

#include "core/base/text.h"

namespace moorage::tool {

core::result<std::vector<core::sweep>> read_sweeps(const std::vector<std::string> &texts) {
    std::vector<core::sweep> sweeps;
    for (const std::string &text : texts) {
        auto parsed = core::parse_sweep(text);
        if (!parsed) return parsed.failure();
        for (const core::sweep &earlier : sweeps)
            if (earlier.section == parsed->section && earlier.key == parsed->key)
                return core::error{
                    core::format("--sweep {}.{} is given twice; name all its values "
                                 "in one: {}.{}=a,b",
                                 parsed->section, parsed->key, parsed->section, parsed->key),
                    true};
        sweeps.push_back(std::move(parsed).value());
    }
    return sweeps;
}

}  // namespace moorage::tool
