// kernels.cpp - launches on the pretended GPU: block by block in loops, or only their time.
//
// PRETENDED_WEIGHTS=bf16: a program whose models all have that type. Kernels of other types take
// most of the time to compile. They are left out, and end the program when they are launched.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/execute/cuda/cuda_products.h"
#include "core/execute/gpu/forward.h"
#include "core/execute/gpu/measured_launches.h"
#include "tests/gpu/pretended/device.h"
#include "tests/unit/host_blocks.h"

namespace moorage::core::gpu {

namespace {

using pretended::kernel_entry;
using pretended::work;

const pretended_rates &rates() { return *pretended::now().rates; }

double read_s(double bytes) {
    return bytes /
           (bytes <= rates().cache_bytes ? rates().cache_bytes_per_s : rates().memory_bytes_per_s);
}
double bytes_of_item(const product_item &item) {
    const auto bytes = static_cast<double>(item.rows * item.weights.row_bytes);
    return item.second ? 2 * bytes : bytes;
}
double operations_s(const product_item &item) {
    const double weights = double{1} * item.rows * item.weights.columns * (item.second ? 2 : 1);
    return 2 * weights * item.count / rates().operations_per_s;
}

// Beyond its launch.
template <class Kernel>
double kernel_s(const Kernel &, dim3) {
    return 0;
}
template <weight_type type, uint32_t tokens_max, uint32_t items_max>
double kernel_s(const row_kernel<type, tokens_max, items_max> &kernel, dim3 grid) {
    double bytes = 0;
    for (uint32_t i = 0; i < (kernel.table ? grid.y : kernel.count); ++i)
        bytes += bytes_of_item(kernel.table ? kernel.table[i] : kernel.items[i]);
    return read_s(bytes);
}
template <weight_type type, bool two>
double kernel_s(const tile_kernel<type, two> &kernel, dim3 grid) {
    double bytes = 0, computed_s = 0;
    for (uint32_t i = 0; i < grid.y; ++i) {
        const product_item &item = kernel.table ? kernel.table[i] : kernel.inline_item;
        bytes += bytes_of_item(item);
        computed_s += operations_s(item);
    }
    return std::max(read_s(bytes), computed_s);
}
template <class Cache, uint32_t rows_max, uint32_t vectors>
double kernel_s(const attend_kernel<Cache, rows_max, vectors> &kernel, dim3) {
    const attend_shape &shape = kernel.shape;
    const double position_bytes =
        double{sizeof(Cache)} * shape.kv_heads * (shape.head_dim + shape.value_dim);
    return (kernel.positions[0] + 1) * position_bytes / rates().context_bytes_per_s;
}

// The streams decide when the host sees the words that a kernel writes to it.
class telling_team : public host_team {
public:
    using host_team::host_team;
    template <class Value>
    void tell(Value *target, Value value) {
        static_assert(sizeof(Value) == sizeof(uint32_t));
        pretended::told_words().push_back(
            {reinterpret_cast<uint32_t *>(target), std::bit_cast<uint32_t>(value), fences_});
    }
    void fence() { ++fences_; }

private:
    uint32_t fences_ = 0;
};

template <class Kernel>
constexpr bool tells = requires(Kernel kernel) {
    kernel.word;
};
template <class Kernel>
const void *told_by(const void *kernel) {
    if constexpr (tells<Kernel>) return static_cast<const Kernel *>(kernel)->word;
    return kernel;
}

template <class Kernel>
work make_launch(const void *kernel, dim3 grid, uint32_t shared_bytes) {
    static_assert(sizeof(Kernel) <= pretended::argument_bytes_max);
    const Kernel kernel_copy = *static_cast<const Kernel *>(kernel);
    return [kernel_copy, grid, shared_bytes] {
        const bool timed = pretended::now().rates.has_value();
        const double taken_s = timed ? rates().launch_s + kernel_s(kernel_copy, grid) : 0;
        // If time is kept nothing is computed, but tables are written and the host gets its words.
        if (timed && !tells<Kernel> && !std::is_same_v<Kernel, words_kernel>) return taken_s;
        if constexpr (tells<Kernel>) {
            telling_team team(Kernel::threads, shared_bytes);
            run_each_block(kernel_copy, team, grid.x, grid.y, grid.z);
        } else {
            host_team team(Kernel::threads, shared_bytes);
            run_blocks(kernel_copy, team, grid.x, grid.y, grid.z);
        }
        return taken_s;
    };
}

// The sums of device_team's warps lie in shared memory behind the kernel's own.
template <class Kernel>
constexpr kernel_entry entry_of{&make_launch<Kernel>, Kernel::threads,
                                Kernel::threads / lanes * sizeof(float),
                                tells<Kernel> ? &told_by<Kernel> : nullptr};

}  // namespace

#ifdef PRETENDED_WEIGHTS
template <class Kernel>
constexpr bool left_out = false;
template <weight_type type>
constexpr bool other_type = type != weight_type::PRETENDED_WEIGHTS;
template <weight_type type, uint32_t tokens_max, uint32_t items_max>
constexpr bool left_out<row_kernel<type, tokens_max, items_max>> = other_type<type>;
template <weight_type type, bool two>
constexpr bool left_out<tile_kernel<type, two>> = other_type<type>;
template <weight_type type>
constexpr bool left_out<absorb_kernel<type>> = other_type<type>;

template <class Kernel>
void run_blocks(const Kernel &kernel, host_team &team, uint32_t x, uint32_t y, uint32_t z) {
    if constexpr (left_out<Kernel>) {
        std::fputs("a kernel was launched that this program has not: PRETENDED_WEIGHTS\n", stderr);
        std::abort();
    } else {
        run_each_block(kernel, team, x, y, z);
    }
}
#endif

template <class Kernel>
void cuda_device::launch(const Kernel &kernel, uint32_t x, uint32_t y, uint32_t z,
                         uint32_t shared_bytes) {
    launch_function(&entry_of<Kernel>, &kernel, {x, y, z, Kernel::threads, shared_bytes});
}

const void *cuda_device::any_kernel() { return &entry_of<embed_kernel>; }

template class forward<cuda_device>;
template void launch_nothing(cuda_device &);
template void launch_product(cuda_device &, const product_item &);

}  // namespace moorage::core::gpu
