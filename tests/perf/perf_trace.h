// perf_trace.h - the trace of the figures: 32 layers x 8 experts, top-2, 200,000 tokens.
//
// Independent draws without replacement. An expert of rank r has weight 1 / r, with a random
// ranking in each layer. 12.8 M requests, 12.8 MB.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "core/source/synth.h"

namespace moorage::perf {

// Writes the trace in a process of its own, so that its memory is not counted here. The caller
// removes the file. Empty if it could not be written.
inline std::filesystem::path write_perf_trace(const core::synth_options &options) {
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() /
        ("moorage-perf-" + std::to_string(getpid()) + ".safetensors");
    const pid_t writer = fork();
    if (writer == 0) {
        const core::status written = core::write_synthetic(options, file);
        if (!written) std::fprintf(stderr, "%s\n", written.failure().text.c_str());
        _exit(written ? 0 : 1);
    }
    int code = 1;
    if (writer < 0 || waitpid(writer, &code, 0) < 0 || code != 0) return {};
    return file;
}

}  // namespace moorage::perf
