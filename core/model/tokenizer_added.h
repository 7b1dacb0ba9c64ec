// tokenizer_added.h - tokens added to the vocabulary. They are found in a text before all other
// steps, or after the normaliser.
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
    bool strip_left = false, strip_right = false;  // includes the white space beside it
    bool normalized = true;                        // searched for after the normaliser
    bool special = false;
};

// Finds added tokens: the leftmost first, and the longest at each place.
class added_token_finder {
public:
    // `text`: the token's spelling where it is searched for, not empty. If two tokens have the same
    // text, the first one stays.
    void add(std::string_view text, const added_token &token);

    // Part of the text: a token (id >= 0), or text between tokens.
    struct part {
        size_t begin, end;
        int32_t id;
    };
    // Without `parse_special`, special tokens are treated as text.
    std::vector<part> find(std::string_view text, bool parse_special) const;

private:
    struct node {
        std::unordered_map<uint8_t, uint32_t> next;
        int32_t token = -1;  // index into tokens_
    };
    // The number of bytes of the longest token at text[begin]; 0: none.
    size_t match(std::string_view text, size_t begin, int32_t &token) const;

    std::vector<added_token> tokens_;
    std::vector<node> nodes_{1};
    bool first_bytes_[256] = {};  // bytes that tokens begin with
};

}  // namespace moorage::core
