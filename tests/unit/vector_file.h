// vector_file.h - a safetensors file of reference values, opened for a test.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "core/base/mapped_file.h"
#include "core/base/safetensors.h"

namespace moorage::test {

struct vector_file {
    core::mapped_file mapped;
    core::safetensors tensors;
    explicit vector_file(const std::filesystem::path &path) {
        auto opened = core::mapped_file::open(path);
        REQUIRE(opened.ok());
        mapped = std::move(*opened);
        auto parsed = core::parse_safetensors(mapped.bytes(), path.string());
        REQUIRE(parsed.ok());
        tensors = std::move(*parsed);
    }
    const core::tensor *find(const std::string &name) const { return tensors.find(name); }
};

}  // namespace moorage::test
