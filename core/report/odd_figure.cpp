// odd_figure.cpp - walks the figures.
#include "core/report/odd_figure.h"

#include <cmath>

#include "core/base/json.h"

namespace moorage::core {

std::string odd_figure(const json &figures) {
    for (const auto &[key, value] : figures.items()) {
        if (value.is_number_float() && !std::isfinite(value.get<double>())) return key;
        if (!value.is_structured()) continue;
        if (const std::string odd = odd_figure(value); !odd.empty()) return key + "." + odd;
    }
    return {};
}

}  // namespace moorage::core
