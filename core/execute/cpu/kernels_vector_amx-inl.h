// kernels_vector_amx-inl.h - products of many tokens with bf16 weights in matrix registers
// (AMX_BF16). Part of kernels_vector_pairs.cpp, for vectors of 16 floats.
//
// A register has 16 rows of 64 bytes. One register holds 32 columns of 16 rows of weights, as they
// are in memory. One holds the same columns of 16 tokens, as inputs of pair panels are packed. One
// holds 16 x 16 sums. So weights are not transposed, and a panel here says where its rows are. The
// sums are transposed instead, once for all columns. An instruction sums 16 even and 16 odd columns
// apart and adds both to the old sum. So a sum may be cut only every 32 columns. Source: Intel's
// manual of instructions, TDPBF16PS, LDTILECFG.
namespace amx {

constexpr uint32_t ROWS = 16, STEP_COLUMNS = 32, SIDES = 2, HALVES = 2;
static_assert(LANES == ROWS && usual_part_unit % STEP_COLUMNS == 0);

// Stands in the place of a panel: rows of weights, 16 or fewer.
struct panel_side {
    const std::byte *first;
    size_t stride;  // bytes
    uint32_t rows;
};

void store_row_pointers(const panel_source &source, uint32_t begin, uint32_t, float *panel) {
    panel_side sides[SIDES];
    for (uint32_t side = 0; side < SIDES; ++side) {
        const std::byte *const *const rows = source.rows + side * ROWS;
        uint32_t count = 1;  // if there are fewer, the last is repeated
        while (count < ROWS && rows[count] != rows[count - 1]) ++count;
        sides[side] = {rows[0] + size_t{begin} * 2, static_cast<size_t>(rows[1] - rows[0]), count};
    }
    std::memcpy(panel, sides, sizeof sides);
}

// The used part of each register. Registers 0 to 3 hold sums [side][half of the tokens], 4 and 5
// weights, 6 and 7 inputs.
struct shape {
    uint32_t rows[SIDES] = {}, tokens[HALVES] = {}, pairs = 0;
    bool operator==(const shape &) const = default;
};
inline shape &current_shape() {
    static thread_local shape thread_shape;
    return thread_shape;
}
// Loses the contents of the registers.
void configure_registers(const shape &wanted) {
    if (wanted == current_shape()) return;
    current_shape() = wanted;
    struct {
        uint8_t palette = 1, start = 0, none[14] = {};
        uint16_t row_bytes[16] = {};
        uint8_t rows[16] = {};
    } config;
    const auto set = [&](uint32_t which, uint32_t rows, uint32_t words) {
        if (rows == 0 || words == 0) return;
        config.rows[which] = static_cast<uint8_t>(rows);
        config.row_bytes[which] = static_cast<uint16_t>(words * 4);
    };
    for (uint32_t i = 0; i < 2; ++i) {
        set(2 * i, wanted.rows[i], wanted.tokens[0]);
        set(2 * i + 1, wanted.rows[i], wanted.tokens[1]);
        set(4 + i, wanted.rows[i], wanted.pairs);
        set(6 + i, wanted.pairs, wanted.tokens[i]);
    }
    asm volatile("ldtilecfg %0" : : "m"(config));
}
// Threads whose matrix registers are empty cost less to switch.
void release_registers() {
    asm volatile("tilerelease" ::: "memory");
    current_shape() = {};
}

template <int number>
HWY_INLINE void load(const void *source, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(source), "r"(stride), "i"(number)
                 : "memory");
}
template <int number>
HWY_INLINE void store(void *target, size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(target), "r"(stride), "i"(number)
                 : "memory");
}
template <int sums, int weights, int inputs>
HWY_INLINE void add_products() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0"
                 :
                 : "i"(sums), "i"(weights), "i"(inputs)
                 : "memory");
}

constexpr size_t LINE_BYTES = ROWS * sizeof(float);
struct sum_tiles {
    alignas(64) float tiles[SIDES][HALVES][ROWS * ROWS] = {};  // [row][token]
};

// `sums` += the products of `steps` times the columns of a register. input: [pair][tokens]; the
// place of a pair is two columns wide.
template <uint32_t sides, uint32_t halves>
void add_steps(const panel_side *panel_sides, const float *input, uint32_t tokens, uint32_t steps,
               sum_tiles &sums) {
    constexpr size_t AHEAD = 4 * 64;
    const std::byte *left = panel_sides[0].first, *right = panel_sides[1].first;
    const size_t left_stride = panel_sides[0].stride, right_stride = panel_sides[1].stride;
    const size_t pair_stride = size_t{tokens} * 2 * sizeof(float);
    const auto *pairs = reinterpret_cast<const std::byte *>(input);
    load<0>(sums.tiles[0][0], LINE_BYTES);
    if constexpr (halves == 2) load<1>(sums.tiles[0][1], LINE_BYTES);
    if constexpr (sides == 2) load<2>(sums.tiles[1][0], LINE_BYTES);
    if constexpr (sides == 2 && halves == 2) load<3>(sums.tiles[1][1], LINE_BYTES);
    for (uint32_t step = 0; step < steps; ++step) {
        load<4>(left, left_stride);
        load<6>(pairs, pair_stride);
        add_products<0, 4, 6>();
        if constexpr (halves == 2) {
            load<7>(pairs + LINE_BYTES, pair_stride);
            add_products<1, 4, 7>();
        }
        if constexpr (sides == 2) {
            load<5>(right, right_stride);
            add_products<2, 5, 6>();
            if constexpr (halves == 2) add_products<3, 5, 7>();
        }
        for (uint32_t row = 0; row < panel_sides[0].rows; ++row)
            hwy::Prefetch(reinterpret_cast<const uint8_t *>(left) + row * left_stride + AHEAD);
        if constexpr (sides == 2)
            for (uint32_t row = 0; row < panel_sides[1].rows; ++row)
                hwy::Prefetch(reinterpret_cast<const uint8_t *>(right) + row * right_stride +
                              AHEAD);
        left += STEP_COLUMNS * 2;
        right += STEP_COLUMNS * 2;
        pairs += pair_stride * (STEP_COLUMNS / 2);
    }
    store<0>(sums.tiles[0][0], LINE_BYTES);
    if constexpr (halves == 2) store<1>(sums.tiles[0][1], LINE_BYTES);
    if constexpr (sides == 2) store<2>(sums.tiles[1][0], LINE_BYTES);
    if constexpr (sides == 2 && halves == 2) store<3>(sums.tiles[1][1], LINE_BYTES);
}

void add(const shape &used, const panel_side *panel_sides, const float *input, uint32_t tokens,
         uint32_t steps, sum_tiles &sums) {
    configure_registers(used);
    const bool both_sides = used.rows[1] != 0, both_halves = used.tokens[1] != 0;
    const auto run = both_sides ? (both_halves ? add_steps<2, 2> : add_steps<2, 1>)
                                : (both_halves ? add_steps<1, 2> : add_steps<1, 1>);
    run(panel_sides, input, tokens, steps, sums);
}

// For fewer columns than a register has. Uses a copy, because the memory after the last column of a
// row holds no weights.
void add_rest(shape used, const panel_side *panel_sides, const float *input, uint32_t tokens,
              uint32_t columns, sum_tiles &sums) {
    alignas(64) std::byte rows[SIDES][ROWS][LINE_BYTES] = {};
    panel_side copies[SIDES] = {};
    for (uint32_t side = 0; side < SIDES; ++side) {
        for (uint32_t row = 0; row < used.rows[side]; ++row)
            std::memcpy(rows[side][row], panel_sides[side].first + row * panel_sides[side].stride,
                        size_t{columns} * 2);
        copies[side] = {rows[side][0], LINE_BYTES, used.rows[side]};
    }
    used.pairs = (columns + 1) / 2;
    add(used, copies, input, tokens, 1, sums);
}

// Calls visit(side, half, lanes, place of its outputs) for the content of a sum register. Outputs
// are [token][lane].
template <class Each>
void for_outputs(const tile_task &task, const shape &used, const Each &visit) {
    for (uint32_t side = 0; side < SIDES && side * ROWS < task.lanes; ++side)
        for (uint32_t half = 0; half < HALVES && used.tokens[half] != 0; ++half)
            visit(side, half, HWY_MIN(ROWS, task.lanes - side * ROWS),
                  task.output + half * ROWS * task.output_stride + side * ROWS);
}

void load_outputs(const tile_task &task, const shape &used, sum_tiles &sums) {
    const float_tag d;
    for_outputs(task, used, [&](uint32_t side, uint32_t half, uint32_t lanes, const float *output) {
        alignas(64) float tokens[ROWS][ROWS] = {};
        for (uint32_t t = 0; t < used.tokens[half]; ++t) {
            if (task.add)
                std::memcpy(tokens[t], output + t * task.output_stride, lanes * sizeof(float));
            if (task.start)
                for (uint32_t i = 0; i < lanes; ++i) tokens[t][i] += task.start[side * ROWS + i];
        }
        hn::Vec<float_tag> v[ROWS];
        for (uint32_t t = 0; t < ROWS; ++t) v[t] = hn::Load(d, tokens[t]);
        transpose(d, v);
        for (uint32_t row = 0; row < ROWS; ++row)
            hn::Store(v[row], d, sums.tiles[side][half] + row * ROWS);
    });
}

void store_outputs(const tile_task &task, const shape &used, const sum_tiles &sums) {
    const float_tag d;
    for_outputs(task, used, [&](uint32_t side, uint32_t half, uint32_t lanes, float *output) {
        hn::Vec<float_tag> v[ROWS];
        for (uint32_t row = 0; row < ROWS; ++row)
            v[row] = hn::Load(d, sums.tiles[side][half] + row * ROWS);
        transpose(d, v);
        for (uint32_t t = 0; t < used.tokens[half]; ++t) {
            float *const target = output + t * task.output_stride;
            if (lanes == ROWS) {
                hn::StoreU(v[t], d, target);
            } else {
                alignas(64) float lane_values[ROWS];
                hn::Store(v[t], d, lane_values);
                std::memcpy(target, lane_values, lanes * sizeof(float));
            }
        }
    });
}

void tile(const tile_task &task) {
    panel_side panel_sides[SIDES];
    std::memcpy(panel_sides, task.panel, sizeof panel_sides);
    const shape used = {
        .rows = {panel_sides[0].rows, task.lanes > ROWS ? panel_sides[1].rows : 0},
        .tokens = {HWY_MIN(task.tokens, ROWS), task.tokens > ROWS ? task.tokens - ROWS : 0},
        .pairs = STEP_COLUMNS / 2};
    sum_tiles sums;
    if (task.add || task.start) load_outputs(task, used, sums);
    const uint32_t steps = task.columns / STEP_COLUMNS, rest = task.columns % STEP_COLUMNS;
    if (steps != 0) add(used, panel_sides, task.input, task.tokens, steps, sums);
    if (rest != 0) {
        const uint32_t begin = task.columns - rest;
        for (panel_side &side : panel_sides) side.first += size_t{begin} * 2;
        add_rest(used, panel_sides, task.input + size_t{begin} * task.tokens, task.tokens, rest,
                 sums);
    }
    store_outputs(task, used, sums);
}

// Whether the processor has these registers and the system gives them to this process.
bool is_available() {
    constexpr uint32_t LEAF = 7, BF16 = 1u << 22, TILES = 1u << 24, STATES = 3u << 17;
    constexpr long REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_OSXSAVE) == 0) return false;
    if (!__get_cpuid_count(LEAF, 0, &a, &b, &c, &d) || (d & BF16) == 0 || (d & TILES) == 0)
        return false;
    uint32_t low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & STATES) == STATES && syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

}  // namespace amx
