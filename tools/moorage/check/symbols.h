// symbols.h - the dynamic symbols that a library defines, read from the file without loading it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace moorage::check {

// Names of all global and weak symbols with a definition, in the order of the file.
core::result<std::vector<std::string>> exported_symbols(const std::filesystem::path &file);

}  // namespace moorage::check
