// sweeps.cpp - one text after the other.
#include "tools/moorage/sweeps.h"

#include <utility>

namespace moorage::tool {

core::result<std::vector<core::sweep>> read_sweeps(const std::vector<std::string> &texts) {
    std::vector<core::sweep> sweeps;
    for (const std::string &text : texts) {
        auto one = core::parse_sweep(text);
        if (!one) return one.failure();
        sweeps.push_back(std::move(one).value());
    }
    return sweeps;
}

}  // namespace moorage::tool
