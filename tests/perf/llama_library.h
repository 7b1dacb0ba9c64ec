// llama_library.h - opens llama.cpp's library, for every program here that uses it.
#pragma once

#include <cstdio>

#include "ggml-backend.h"
#include "llama.h"

// `folder` holds the library's parts for each processor. Only errors are printed.
inline void open_llama_library(const char *folder) {
    llama_log_set(
        [](ggml_log_level level, const char *text, void *) {
            if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
        },
        nullptr);
    ggml_backend_load_all_from_path(folder);
    llama_backend_init();
}
