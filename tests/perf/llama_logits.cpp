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

int main(int count, char **arguments) {
    if (count != 7) return 2;
    open_llama_library(arguments[1]);
    std::ifstream prompts(arguments[3], std::ios::binary);
    const int length = std::atoi(arguments[4]), tokens = std::atoi(arguments[5]);
    llama_model *model = llama_model_load_from_file(arguments[2], llama_model_default_params());
    if (model == nullptr) return 1;
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(length + tokens);
    params.n_batch = params.n_ubatch = static_cast<uint32_t>(length);
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context *context = llama_init_from_model(model, params);
    FILE *output = std::fopen(arguments[6], "wb");
    if (context == nullptr || output == nullptr) return 1;
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
            if (std::fwrite(row, sizeof(float), words, output) != words) return 1;
        }
        for (int i = 0; i < tokens; ++i) {
            const auto likeliest = static_cast<int32_t>(std::max_element(row, row + words) - row);
            if (std::fwrite(&likeliest, sizeof likeliest, 1, output) != 1) return 1;
            if (!text.decode(context, &likeliest, length + i, 1)) return 1;
            row = llama_get_logits_ith(context, 0);
        }
    }
    return std::fclose(output) == 0 ? 0 : 1;
}
