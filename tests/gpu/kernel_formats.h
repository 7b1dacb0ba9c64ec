// kernel_formats.h - checks of the readers of weights: every value to the bit, in units, in runs
// and alone, on aligned rows and on odd ones.
#pragma once

#include "core/execute/gpu/arithmetic/tokens.h"
#include "tests/gpu/kernel_products.h"

namespace moorage::core::gpu {

// The ways in which kernels read the values of a matrix; one block per row.
enum class reading : uint8_t { units, runs, odd_runs, singles };
template <weight_type type>
struct widen_kernel {
    static constexpr uint32_t threads = 64;
    matrix weights;
    reading method;
    float *output;  // [rows, columns]

    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &team) const {
        using reads = reader<type>;
        const stored_row row = row_of<type>(weights, team.block_x);
        float *output_row = output + static_cast<uint64_t>(team.block_x) * weights.columns;
        // Columns beyond the last whole span are read one by one. So is the whole row if it is not
        // aligned for the loads.
        const bool reached = method == reading::odd_runs || is_aligned<type>(row);
        const uint32_t spans = reached ? weights.columns / span_columns<type> : 0;
        const uint32_t whole = spans * span_columns<type>;
        team.each([&](uint32_t thread) {
            for (uint32_t c = (method == reading::singles ? 0 : whole) + thread;
                 c < weights.columns; c += threads)
                output_row[c] = read_single<type>(row, c);
            if (method == reading::singles) return;
            for (uint32_t number = thread; number < whole / unit_values<type>; number += threads) {
                const uint32_t begin =
                    number / span_units<type> * span_columns<type> + number % span_units<type> * 4;
                floats4 values[reads::runs];
                if (method == reading::units) read_unit<type>(row, number, values);
                for (uint32_t i = 0; i < reads::runs; ++i) {
                    const uint32_t column = begin + i * reads::apart;
                    if (method == reading::runs)
                        values[i] = read_run<type, reads::alignment>(row, column);
                    if (method == reading::odd_runs) values[i] = read_run<type, 1>(row, column);
                    for (uint32_t n = 0; n < 4; ++n) output_row[column + n] = values[i].value[n];
                }
            }
        });
    }
};

template <weight_type type, class Bench>
void check_values(Bench &bench, const random_matrix &weights, std::initializer_list<reading> ways,
                  const std::string &description) {
    constexpr const char *names[] = {"units", "runs", "odd runs", "singles"};
    for (const reading method : ways) {
        // A format that has only values never reads its runs from odd rows.
        if (method == reading::odd_runs && type == weight_type::f32) continue;
        float *output = bench.template poisoned<float>(weights.values.size());
        bench.device().launch(widen_kernel<type>{weights.shape, method, output}, weights.shape.rows,
                              1, 1, 0);
        bench.expect_bits(std::string(name_of(type)) + " " + std::to_string(format_of(type).block) +
                              " in " + names[static_cast<size_t>(method)] + description,
                          bench.get(output, weights.values.size()), weights.values);
    }
}

// All 2^16 scales that blocks may have; `times` over, so that all codes of 8 bits occur.
template <weight_type type, class Bench>
void check_all_scales(Bench &bench) {
    constexpr weight_format format = format_of(type);
    constexpr uint32_t times = type == weight_type::q8_0 ? 8 : 1, columns = 64 * format.block;
    constexpr uint32_t blocks = 65536 * times, rows = blocks / 64;
    std::vector<std::byte> bytes(uint64_t{blocks} * format.bytes);
    for (std::byte &byte : bytes) byte = static_cast<std::byte>(bench.below(256));
    for (uint32_t number = 0; number < blocks; ++number) {
        std::byte *block = &bytes[uint64_t{number} * format.bytes];
        const auto scale = static_cast<uint16_t>(number / times);
        for (const half_place &place : half_places)
            if (place.type == type) {
                std::memcpy(block + place.offset, &scale, sizeof scale);
                break;  // a minimum stays as it is
            }
        // Every code with every scale, if 32 values have room for them.
        for (uint32_t i = 0; i < format.block && format.block == 32; ++i)
            if (type == weight_type::q8_0)
                block[2 + i] = static_cast<std::byte>(number % times * 32 + i);
            else if (i < 16)
                block[format.bytes - 16 + i] = static_cast<std::byte>(i * 17);
        // The second half has the codes from 16 on.
        if (type == weight_type::q5_0 || type == weight_type::q5_1)
            std::memset(block + format.bytes - 20, 0, 2),
                std::memset(block + format.bytes - 18, 255, 2);
        if (type == weight_type::mxfp4_gguf) *block = static_cast<std::byte>(number);
    }
    check_values<type>(bench, bench.matrix_of(type, rows, columns, std::move(bytes)),
                       {reading::units, reading::odd_runs}, ", all scales");
}

// `all_scales`: 16 million values of some formats.
template <class Bench>
void check_formats(Bench &bench, bool all_scales) {
    const auto of_type = [&]<weight_type type>() {
        for (const uint32_t columns : {whole_columns(type, 32), whole_columns(type, 523)})
            check_values<type>(bench, bench.make_matrix(type, 131, columns),
                               {reading::units, reading::runs, reading::odd_runs, reading::singles},
                               "");
        const bool scaled = std::ranges::any_of(
            half_places, [](const half_place &place) { return place.type == type; });
        if constexpr (in_groups(type) && format_of(type).gguf_id != no_gguf_id)
            if (all_scales && (scaled || type == weight_type::mxfp4_gguf))
                check_all_scales<type>(bench);
    };
    const auto check_each = [&]<size_t... index>(std::index_sequence<index...>) {
        (of_type.template operator()<weight_formats[index].type>(), ...);
    };
    check_each(std::make_index_sequence<weight_format_count>());
}

}  // namespace moorage::core::gpu
