// tokenizer_added.h - tokens beside the vocabulary's own: found in a text before anything else, or
// behind the normaliser.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace moorage::core {

struct added_token {
    std::string content;
    int32_t id = 0;
    bool single_word = false;                      // not within a word
    bool strip_left = false, strip_right = false;  // takes the white space beside it along
    bool normalized = true;                        // looked for behind the normaliser
    bool special = false;
};

// Finds added tokens: the leftmost, and the longest of those.
class added_finder {
public:
    // `text`: what the token looks like where it is looked for. Not empty; the first token of a
    // text stays.
    void add(std::string_view text, const added_token &token);

    // A stretch of the text: a token (id >= 0), or text between tokens.
    struct part {
        size_t begin, end;
        int32_t id;
    };
    // Without `special`, special tokens count as text.
    std::vector<part> find(std::string_view text, bool special) const;

private:
    struct node {
        std::unordered_map<uint8_t, uint32_t> next;
        int32_t token = -1;  // index into tokens_
    };
    // The longest token at text[at]: its bytes, 0 for none.
    size_t match(std::string_view text, size_t at, int32_t &token) const;

    std::vector<added_token> tokens_;
    std::vector<node> nodes_{1};
    bool begins_[256] = {};  // bytes that tokens begin with
};

}  // namespace moorage::core
