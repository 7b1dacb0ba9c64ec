// llama_logits.cpp - logits of random prompts by llama.cpp's library, and the likeliest tokens
// after each, for beside_llama --errors, which compiles it.
//
//   llama_logits LIBRARIES FILE PROMPTS LENGTH TOKENS OUT
//
// Float32 K/V cache, no flash attention, one thread: only the weights' arithmetic rounds.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "llama_library.h"

namespace {

struct batch_of_one_text {
    explicit batch_of_one_text(int size) : batch(llama_batch_init(size, 0, 1)) {}
    bool decode(llama_context *context, const int32_t *ids, int first, int count) {
        batch.n_tokens = count;
        for (int i = 0; i < count; ++i) {
            batch.token[i] = ids[i];
            batch.pos[i] = first + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        return llama_decode(context, batch) == 0;
    }
    llama_batch batch;
};

}  // namespace

int main(int count, char **given) {
    if (count != 7) return 2;
    open_llama_library(given[1]);
    std::ifstream prompts(given[3], std::ios::binary);
    const int length = std::atoi(given[4]), tokens = std::atoi(given[5]);
    llama_model *model = llama_model_load_from_file(given[2], llama_model_default_params());
    if (model == nullptr) return 1;
    llama_context_params how = llama_context_default_params();
    how.n_ctx = static_cast<uint32_t>(length + tokens);
    how.n_batch = how.n_ubatch = static_cast<uint32_t>(length);
    how.n_threads = how.n_threads_batch = 1;
    how.type_k = how.type_v = GGML_TYPE_F32;
    how.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context *context = llama_init_from_model(model, how);
    FILE *out = std::fopen(given[6], "wb");
    if (context == nullptr || out == nullptr) return 1;
    const auto words = static_cast<uint32_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
    std::vector<int32_t> prompt(static_cast<size_t>(length));
    batch_of_one_text text(length);
    while (prompts.read(reinterpret_cast<char *>(prompt.data()),
                        static_cast<std::streamsize>(prompt.size() * sizeof prompt[0]))) {
        llama_memory_clear(llama_get_memory(context), true);
        if (!text.decode(context, prompt.data(), 0, length)) return 1;
        const float *row = nullptr;
        for (int i = 0; i < length; ++i) {
            row = llama_get_logits_ith(context, i);
            if (std::fwrite(row, sizeof(float), words, out) != words) return 1;
        }
        for (int i = 0; i < tokens; ++i) {
            const auto likeliest = static_cast<int32_t>(std::max_element(row, row + words) - row);
            if (std::fwrite(&likeliest, sizeof likeliest, 1, out) != 1) return 1;
            if (!text.decode(context, &likeliest, length + i, 1)) return 1;
            row = llama_get_logits_ith(context, 0);
        }
    }
    return std::fclose(out) == 0 ? 0 : 1;
}
