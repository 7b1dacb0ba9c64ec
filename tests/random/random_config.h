// random_config.h - a configuration of a run as TOML text, drawn from a seed.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "core/host/registry.h"
#include "tests/unit/toy_machine.h"

namespace moorage::random {

// Draws over the policies of a registry; one named `anything_...` comes more often. Its traces and
// profiles are files that are removed with it.
class config_maker {
public:
    // `demo` is a model's directory.
    config_maker(const core::registry &known, std::filesystem::path demo);
    struct drawn_config {
        std::string text;
        std::filesystem::path file;  // that its paths are relative to
    };
    // The same seed and policies give the same text, except for the names of folders.
    drawn_config draw(uint64_t seed) const;
    // A configuration of a trace with experts on disk, beyond a host memory of some size.
    drawn_config draw_on_disk(uint64_t seed) const;
    // A configuration of a trace over two or three unequal GPUs.
    drawn_config draw_on_gpus(uint64_t seed) const;
    // One of these.
    drawn_config draw_anywhere(uint64_t seed) const;

private:
    struct source_file {
        uint32_t layers, experts, top_k;
        bool scores, predictions;
    };
    void write_source(const source_file &source);
    std::string folder_of(size_t number) const { return folders_[number].path().string(); }
    std::string stage(core::random_stream &draws, std::string_view kind, uint32_t lacking,
                      const std::string &extra_lines = "") const;
    std::string trace_text(core::random_stream &draws, const source_file &source,
                           const std::string &memory = "") const;
    std::string model_text(core::random_stream &draws) const;
    std::string cluster_text(core::random_stream &draws, const source_file &source) const;
    std::string stages(core::random_stream &draws, uint32_t lacking) const;

    const core::registry &known_;
    std::filesystem::path demo_;
    std::vector<source_file> sources_;
    std::deque<toy::folder> folders_;  // of each
};

}  // namespace moorage::random
