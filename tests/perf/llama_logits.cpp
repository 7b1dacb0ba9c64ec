// llama_logits.cpp - logits of random prompts by llama.cpp's library, for beside_llama --errors,
// which compiles it.
//
//   llama_logits LIBRARIES FILE PROMPTS LENGTH OUT
//
// Float32 K/V cache, no flash attention, one thread: what rounds is the weights' arithmetic alone.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "llama_library.h"
#include "random_prompts.h"

int main(int count, char **given) {
    if (count != 6) return 2;
    open_llama_library(given[1]);
    const int prompts = std::atoi(given[3]), length = std::atoi(given[4]);
    llama_model *model = llama_model_load_from_file(given[2], llama_model_default_params());
    if (model == nullptr) return 1;
    llama_context_params how = llama_context_default_params();
    how.n_ctx = how.n_batch = how.n_ubatch = static_cast<uint32_t>(length);
    how.n_threads = how.n_threads_batch = 1;
    how.type_k = how.type_v = GGML_TYPE_F32;
    how.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context *context = llama_init_from_model(model, how);
    FILE *out = std::fopen(given[5], "wb");
    if (context == nullptr || out == nullptr) return 1;
    const auto words = static_cast<uint32_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
    random_prompts drawn(static_cast<uint32_t>(length), words);
    llama_batch batch = llama_batch_init(length, 0, 1);
    batch.n_tokens = length;
    for (int prompt = 0; prompt < prompts; ++prompt) {
        const auto &ids = drawn.next();
        for (int i = 0; i < length; ++i) {
            batch.token[i] = ids[static_cast<size_t>(i)];
            batch.pos[i] = i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        llama_memory_clear(llama_get_memory(context), true);
        if (llama_decode(context, batch) != 0) return 1;
        for (int i = 0; i < length; ++i)
            if (std::fwrite(llama_get_logits_ith(context, i), sizeof(float), words, out) != words)
                return 1;
    }
    return std::fclose(out) == 0 ? 0 : 1;
}
