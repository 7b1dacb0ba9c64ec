// tokenizer_fuzz.cpp - fuzz target of tokenizer.json: whatever the bytes, an error or a tokenizer
// that turns any text into ids below its size and any ids into UTF-8, at once and token by token.
//
// The input is the file and, behind a zero byte, a text. Half of the mutations move or replace
// values of the parsed file; most others would end at the JSON parser.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/model/tokenizer.h"
#include "core/model/unicode.h"

using namespace moorage::core;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max);

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

struct input {
    std::string file, text;
};

input input_of(const uint8_t *data, size_t size) {
    const std::string_view all(reinterpret_cast<const char *>(data), size);
    const size_t zero = all.find('\0');
    if (zero == all.npos) return {std::string(all), "ab  \u00e9\n <s>'s 12\u4f60"};
    return {std::string(all.substr(0, zero)), std::string(all.substr(zero + 1))};
}

void put_to_work(const tokenizer &with, const std::string &text) {
    std::vector<int32_t> ids = {0, 1, 2};
    for (const bool special : {true, false}) {
        const auto done = with.encode(text, {.add_special = special, .parse_special = special});
        if (!done) require(!done.failure().text.empty());
        if (done) ids.insert(ids.end(), done->begin(), done->end());
    }
    for (size_t i = 3; i < ids.size(); ++i)
        require(ids[i] >= 0 && static_cast<uint32_t>(ids[i]) < with.size());
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
    text_stream stream(with, {});
    std::string pieces;
    for (const int32_t id : ids) {
        const std::string piece = stream.push(id);
        require(valid_utf8(piece));
        pieces += piece;
    }
    pieces += stream.finish();
    require(valid_utf8(pieces));
    require(pieces == with.decode(ids, {}));
}

// Every value of the tree, the root first.
void collect(json &node, std::vector<json *> &nodes) {
    nodes.push_back(&node);
    if (node.is_structured() && nodes.size() < 10'000)
        for (json &child : node) collect(child, nodes);
}

void change(json &root, std::mt19937 &random) {
    std::vector<json *> nodes;
    collect(root, nodes);
    json &target = *nodes[random() % nodes.size()];
    const json &source = *nodes[random() % nodes.size()];
    static const char *const texts[] = {"\\s+(?!\\S)", "\\p{L}", "(a|b)*", "[^\\s]",
                                        "NFC",         "a",      "\u2581", ""};
    switch (random() % 6) {
        case 0:
            target = json(source);
            break;
        case 1:
            target = random() % 300;
            break;
        case 2:
            target = random() % 2 == 0;
            break;
        case 3:
            target = texts[random() % std::size(texts)];
            break;
        case 4:
            if (target.is_array()) target.push_back(json(source));
            break;
        default:
            if (target.is_structured() && !target.empty()) {
                auto at = target.begin();
                std::advance(at, random() % target.size());
                target.erase(at);
            }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const input given = input_of(data, size);
    const auto made = tokenizer::parse(given.file, "fuzz");
    if (made)
        put_to_work(**made, given.text);
    else
        require(made.failure().text.starts_with("fuzz"));
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max,
                                          unsigned seed) {
    if (seed % 2 == 0) return LLVMFuzzerMutate(data, size, size_max);
    input given = input_of(data, size);
    json root = json::parse(given.file, nullptr, /*allow_exceptions=*/false);
    if (root.is_discarded()) return LLVMFuzzerMutate(data, size, size_max);
    std::mt19937 random(seed);
    for (uint32_t left = 1 + random() % 3; left > 0; --left) change(root, random);
    std::string made = root.dump(-1, ' ', false, json::error_handler_t::replace);
    made += '\0';
    made += given.text;
    if (made.size() > size_max) return LLVMFuzzerMutate(data, size, size_max);
    std::memcpy(data, made.data(), made.size());
    return made.size();
}
