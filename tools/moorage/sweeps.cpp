// sweeps.cpp - reads one text after the other.
#include "tools/moorage/sweeps.h"

#include <utility>

#include "core/base/text.h"

namespace moorage::tool {

core::result<std::vector<core::sweep>> read_sweeps(const std::vector<std::string> &texts) {
    std::vector<core::sweep> sweeps;
    for (const std::string &text : texts) {
        auto one = core::parse_sweep(text);
        if (!one) return one.failure();
        for (const core::sweep &before : sweeps)
            if (before.section == one->section && before.key == one->key)
                return core::error{core::format("--sweep {}.{} is given twice; name all its values "
                                                "in one: {}.{}=a,b",
                                                one->section, one->key, one->section, one->key),
                                   true};
        sweeps.push_back(std::move(one).value());
    }
    return sweeps;
}

}  // namespace moorage::tool
