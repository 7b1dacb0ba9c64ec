// kernels_code_panels.h - panels of codes for many tokens, and the layout of rows and activations
// in codes. Shared by kernels_product_codes.cpp and kernels_mlp_codes.cpp.
#pragma once

#include "core/execute/cpu/kernels_codes.h"
#include "core/execute/cpu/kernels_panels.h"

namespace moorage::core {

// Products of `tokens` tokens with matrices in codes (form_of).
void multiply_codes(thread_pool &pool, uint32_t tokens, std::span<const product> products);

// Activations of all tokens as tiles of codes, tile after tile.
struct coded_tokens {
    uint32_t *data;
    code_layout cut;
    token_tiles tiles;

    // Words of one token.
    static size_t words_of(const code_layout &cut) {
        return size_t{cut.chunks()} * CHUNK_BLOCKS * TILE_WORDS;
    }
    // The blocks of a part within a tile.
    uint32_t *part_blocks(uint32_t tile, uint32_t part) const {
        return data + words_of(cut) * tiles.begin(tile) +
               size_t{part} * cut.chunks_of_part() * CHUNK_BLOCKS * TILE_WORDS * tiles.size(tile);
    }
    // Puts cut.shared activations from column `column` on, of token `token` of a tile.
    void put(uint32_t tile, uint32_t token, uint32_t column, const float *values) const;
};

// Blocks of a panel that holds 16 rows of one part.
inline size_t panel_blocks(const code_layout &cut) {
    return size_t{cut.chunks_of_part()} * CHUNK_BLOCKS;
}
// output[t, lane] (= or +=) start[lane] + row first + lane . token t, for `lanes` rows at most 16.
// panel: memory of panel_blocks().
void multiply_code_panel(const matrix &weights, uint32_t first, uint32_t lanes,
                         const coded_tokens &input, const float *start, bool add, rows output,
                         code_panel_block *panel);

// How many rows of a matrix a thread takes at a time, so that reading the weights takes no break.
// The next product reads these results as blocks of 8-bit codes, so the count is whole blocks.
inline uint32_t code_rows_of_item(uint64_t row_bytes, uint64_t total_bytes, uint32_t threads) {
    return divide_up(rows_of_item(row_bytes, total_bytes, threads), CODE_BLOCK) * CODE_BLOCK;
}

// Floats to take for so many bytes. Each such part begins on a cache line of its own.
inline size_t floats_of_bytes(size_t bytes) { return (bytes + 63) / 64 * 16; }

}  // namespace moorage::core
