// policy_library.h - opens the library of a policy of this build and lays out the values of its
// parameters, for every harness here.
#pragma once

#include <dlfcn.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <moorage/module.h>

namespace moorage::test {

// Values for parameters without their defaults; flags are "1".
using parameters = std::map<std::string, std::string>;

// `file`: "cache/lru", below the plugins of this build. It stays open.
inline const moorage_module *open_library(const std::string &file) {
    const std::string path = std::string(MOORAGE_BINARY_DIR) + "/plugins/" + file + ".so";
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    return reinterpret_cast<moorage_module_function>(dlsym(library, MOORAGE_MODULE_SYMBOL))();
}

// For create(); texts point into `params`.
inline std::vector<moorage_value> values_of(const moorage_descriptor &about,
                                            const parameters &params) {
    std::vector<moorage_value> values;
    size_t known = 0;
    for (uint32_t i = 0; i < about.param_count; ++i) {
        const moorage_param &param = about.plugin_params[i];
        moorage_value value{sizeof(value), param.type, param.integer_default, param.real_default,
                            param.plugin_text_default};
        if (const auto found = params.find(param.plugin_key); found != params.end()) {
            ++known;
            value.host_text = found->second.c_str();
            if (param.type == MOORAGE_PARAM_REAL)
                value.real = std::stod(found->second);
            else if (param.type != MOORAGE_PARAM_TEXT)
                value.integer = std::stoll(found->second);
        }
        values.push_back(value);
    }
    if (known != params.size())
        throw std::runtime_error(std::string("unknown parameter of ") + about.plugin_name);
    return values;
}

}  // namespace moorage::test
