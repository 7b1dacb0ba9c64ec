// gguf_ends.cpp - the names, and the search through the file's tokens.
#include "core/model/gguf_ends.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace moorage::core {

namespace {

// From the chat formats of the published models.
constexpr std::string_view names_of_ends[] = {
    "</s>",             // Llama 2, Mistral
    "<eos>",            // Gemma
    "<|eot_id|>",       // Llama 3
    "<|eom_id|>",       // Llama 3, before a tool's answer
    "<|end_of_text|>",  // Llama 3, Granite
    "<|im_end|>",       // ChatML: Qwen, Yi
    "<|endoftext|>",    // GPT-2, Qwen, OLMo
    "<|end|>",          // Phi-3
    "<|return|>",       // gpt-oss, the end of an answer
    "<|call|>",         // gpt-oss, before a tool's answer
    "<|eot|>",          // Llama 4
    "<|eom|>",          // Llama 4
    "<end_of_turn>",    // Gemma
    "<|end_of_turn|>",  // Cohere, OpenChat
    "<|END_OF_TURN_TOKEN|>",
    "<|user|>",         // GLM: the user's turn begins
    "<|observation|>",  // GLM: a tool's turn begins
    "[EOT]",
    "[EOS]",
    "<EOT>",
    "_<EOT>",              // StarCoder
    "<end_of_utterance>",  // SmolVLM
    "<|eos|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",  // DeepSeek
};
constexpr std::string_view part_end = "<|end|>", answer_end = "<|return|>";
constexpr double control_kind = 3, user_kind = 4;

}  // namespace

std::vector<int32_t> named_ends_of(const gguf_metadata &keys, uint32_t vocabulary) {
    const auto tokens = keys.find("tokenizer.ggml.tokens");
    const auto kinds = keys.find("tokenizer.ggml.token_type");
    if (tokens == keys.end() || kinds == keys.end()) return {};
    const auto *const names = std::get_if<gguf_texts>(&tokens->second);
    const auto *const numbers = std::get_if<gguf_numbers>(&kinds->second);
    if (names == nullptr || numbers == nullptr || numbers->count != names->size()) return {};
    std::vector<int32_t> ends;
    bool has_answer_end = false;
    int32_t part_end_id = -1;
    for (uint64_t id = 0; id < std::min<uint64_t>(names->size(), vocabulary); ++id) {
        const std::string_view name = (*names)[id];
        if (std::ranges::find(names_of_ends, name) == std::end(names_of_ends)) continue;
        // Some files give these names the kind of ordinary words, by mistake: nobody writes them.
        const bool is_unmistakable = name.starts_with("<|") && name.ends_with("|>");
        if (const double kind = numbers->at(id);
            !is_unmistakable && kind != control_kind && kind != user_kind)
            continue;
        has_answer_end |= name == answer_end;
        if (name == part_end) part_end_id = static_cast<int32_t>(id);
        ends.push_back(static_cast<int32_t>(id));
    }
    // If answers have several parts, this token ends a part and not the answer.
    if (has_answer_end) std::erase(ends, part_end_id);
    return ends;
}

}  // namespace moorage::core
