// measure_device.cpp - what a GPU does without a model: copies, launches, products.
#if defined(MOORAGE_HAS_CUDA)

#include <algorithm>

#include "core/execute/cuda/measure_parts.h"
#include "core/execute/gpu/forward_buffers.h"
#include "core/execute/gpu/measured_kernels.h"

namespace moorage::core::gpu {

namespace {

constexpr uint64_t piece_min_bytes = 4096, piece_max_bytes = 64 << 20;
// Read at least before the same weights come round again: above the caches of GPUs.
constexpr uint64_t apart_bytes = uint64_t{256} << 20;
constexpr uint32_t columns_most = 4096;

float *floats(std::byte *memory) { return reinterpret_cast<float *>(memory); }
uint16_t *halves(std::byte *memory) { return reinterpret_cast<uint16_t *>(memory); }

std::vector<timed_sample> copy_sizes(device_bench &bench, double budget_s, std::byte *on_device,
                                     std::byte *pinned, uint64_t block_bytes, bool to_host) {
    cuda_device &device = bench.device();
    std::vector<timed_sample> samples;
    for (uint64_t bytes = piece_min_bytes; bytes <= std::min(piece_max_bytes, block_bytes);
         bytes *= 4) {
        // Walks through the block, so that no cache of the host has the copied bytes.
        uint64_t offset = 0;
        const double seconds = bench.time_by_host(budget_s, device.demand(), [&] {
            if (offset + bytes > block_bytes) offset = 0;
            std::byte *target = on_device + offset, *source = pinned + offset;
            if (to_host) std::swap(target, source);
            device.copy(target, source, bytes, device.demand());
            offset += bytes;
        });
        samples.push_back({static_cast<double>(bytes), seconds});
    }
    return samples;
}

// Weights, inputs and outputs on the GPU that all products share. Their contents do not matter.
class product_bench {
public:
    product_bench(device_bench &bench, double budget_s, uint64_t block_bytes)
        : bench_(bench), budget_s_(budget_s), block_bytes_(block_bytes) {
        while (side_ > 64 && 8 * uint64_t{side_} * side_ > block_bytes) side_ /= 2;
        const uint64_t square = uint64_t{side_} * side_;
        const uint64_t rows_most = std::max<uint64_t>(block_bytes / 2 / columns_most, 1 << 16);
        cuda_device &device = bench.device();
        weights_ = device.take_memory(block_bytes);
        scales_ = device.take_memory(block_bytes / 16);
        input_ = device.take_memory(std::max<uint64_t>(square, columns_most * 256) * 4);
        output_ = device.take_memory(std::max<uint64_t>(4 * square, rows_most) * 4);
        std::byte *high = device.take_memory(std::max<uint64_t>(square, columns_most * 256) * 2);
        std::byte *low = device.take_memory(std::max<uint64_t>(square, columns_most * 256) * 2);
        std::byte *workspace = device.take_memory(cuda_device::workspace_bytes);
        if (!device.notes().failed()) device.use_scratch(halves(high), halves(low), workspace);
    }

    product_item make_item(weight_type type, uint32_t rows, uint32_t columns,
                           uint32_t tokens) const {
        product_item product;
        product.weights = packed_matrix(type, rows, columns, weights_, scales_);
        product.rows = product.output_stride = rows;
        product.input_stride = columns;
        product.input = floats(input_);
        product.output = floats(output_);
        product.count = tokens;
        return product;
    }

    // Seconds of one product, from several one after the other. `walks`: each uses other weights.
    double seconds(const product_item &item, bool walks) {
        const uint64_t bytes = uint64_t{item.rows} * item.weights.row_bytes;
        const auto times = static_cast<uint32_t>(std::clamp<uint64_t>(apart_bytes / bytes, 2, 64));
        const auto launch_all = [&] {
            uint64_t offset = 0;
            for (uint32_t i = 0; i < times; ++i) {
                product_item product = item;
                if (walks) {
                    if (offset + bytes > block_bytes_) offset = 0;
                    product.weights.data += offset;
                    const weight_format &format = format_of(product.weights.type);
                    product.weights.scales += offset / format.bytes * format.scale_bytes;
                    offset += bytes;
                }
                launch_product(bench_.device(), product);
            }
        };
        // Products of the library launch more than one kernel each and need no recording to hide
        // their launches.
        if (item.count > few_tokens) return bench_.time_on_device(budget_s_, launch_all) / times;
        const uint32_t number = bench_.record(launch_all);
        return bench_.time_on_device(budget_s_, [&] { bench_.device().replay(number); }) / times;
    }

    // The library's products of halves, two for each.
    double operations_per_s() {
        const product_item large = make_item(usual_weights, 4 * side_, side_, side_);
        const double operations = 2.0 * 2 * large.rows * large.weights.columns * large.count;
        return operations / seconds(large, false);
    }

    double copied_bytes_per_s() {
        cuda_device &device = bench_.device();
        const uint64_t half = block_bytes_ / 2;
        const double seconds = bench_.time_on_device(
            budget_s_, [&] { device.copy(weights_ + half, weights_, half, device.compute()); });
        return 2 * static_cast<double>(half) / seconds;
    }

private:
    device_bench &bench_;
    double budget_s_;
    uint64_t block_bytes_;
    uint32_t side_ = 4096;
    std::byte *weights_ = nullptr, *scales_ = nullptr, *input_ = nullptr, *output_ = nullptr;
};

}  // namespace

void measure_link(device_bench &bench, double budget_s, uint64_t block_bytes,
                  measured_machine &machine) {
    cuda_device &device = bench.device();
    const uint64_t bytes = std::min(block_bytes, apart_bytes);
    std::byte *pinned = device.take_pinned(bytes), *on_device = device.take_memory(bytes);
    if (device.notes().failed()) return;
    // Written first: untouched pages of the host are not there yet.
    std::fill_n(pinned, bytes, std::byte{1});
    machine.to_device = copy_sizes(bench, budget_s, on_device, pinned, bytes, /*to_host=*/false);
    machine.to_host = copy_sizes(bench, budget_s, on_device, pinned, bytes, /*to_host=*/true);
}

// As a layer of few tokens runs: a recording of kernels, with the copy of a small result at its
// end.
void measure_launches(device_bench &bench, double budget_s, measured_machine &machine) {
    constexpr uint64_t result_bytes = 256;
    cuda_device &device = bench.device();
    std::byte *pinned = device.take_pinned(result_bytes);
    std::byte *on_device = device.take_memory(result_bytes);
    if (device.notes().failed()) return;
    std::vector<timed_sample> by_count;
    for (const uint32_t count : {1u, 16u, 64u, 256u}) {
        const uint32_t number = bench.record([&] {
            for (uint32_t i = 0; i < count; ++i) launch_nothing(device);
            device.copy_out(pinned, on_device, result_bytes);
        });
        by_count.push_back(
            {static_cast<double>(count),
             bench.time_by_host(budget_s, device.compute(), [&] { device.replay(number); })});
        if (device.notes().failed()) return;
    }
    const line_fit line = fit_line(by_count);
    machine.loop_seconds = line.slope;
    machine.sync_seconds = line.constant;
}

void measure_products(device_bench &bench, double budget_s, uint64_t block_bytes,
                      measured_machine &machine) {
    product_bench products(bench, budget_s, block_bytes);
    const cuda_device &device = bench.device();
    if (device.notes().failed()) return;
    machine.operations_per_s = products.operations_per_s();
    machine.read_bytes_per_s = products.copied_bytes_per_s();
    const auto add = [&](weight_type type, uint32_t rows, uint32_t columns, uint32_t tokens) {
        const product_item item = products.make_item(type, rows, columns, tokens);
        const auto bytes = static_cast<double>(bytes_of(item.weights));
        if (device.notes().failed() || bytes > static_cast<double>(block_bytes)) return;
        const double seconds = products.seconds(item, true);
        machine.products.push_back({type, rows, columns, tokens, bytes, seconds});
        // Small ones may come from a cache, however they walk.
        if (tokens == 1 && bytes >= 64e6 && block_bytes >= apart_bytes)
            machine.read_bytes_per_s = std::max(machine.read_bytes_per_s, bytes / seconds);
    };
    constexpr uint32_t shapes[][2] = {
        {256, 256}, {1024, 1024}, {4096, 1024}, {4096, 4096}, {14336, 4096}};
    for (const auto &[rows, columns] : shapes) add(usual_weights, rows, columns, 1);
    for (const weight_format &format : weight_formats)
        // The last one's columns would be of groups that are not there.
        if (format.type != usual_weights && format.type != weight_type::int4_ordered)
            add(format.type, 4096, 4096, 1);
    for (const uint32_t tokens : {4u, 16u, 64u, 256u}) add(usual_weights, 4096, 4096, tokens);

    // The same weights repeatedly, in one launch. The launch's own time is subtracted. If that is
    // half of the time, the set is too small to measure.
    for (uint64_t bytes = 1 << 20; bytes <= block_bytes; bytes *= 2) {
        const auto rows = static_cast<uint32_t>(bytes / 2 / columns_most);
        const double seconds =
            products.seconds(products.make_item(usual_weights, rows, columns_most, 1), false);
        if (device.notes().failed()) return;
        if (seconds < 2 * machine.loop_seconds) continue;
        machine.working_sets.push_back(
            {static_cast<double>(bytes), seconds - machine.loop_seconds});
    }
}

}  // namespace moorage::core::gpu

#endif
