// measured_launches.h - the inside of measured_kernels.h. Part of the one file that launches
// kernels.
#pragma once

#include "core/execute/gpu/arithmetic/tile.h"
#include "core/execute/gpu/forward_layer.h"
#include "core/execute/gpu/measured_kernels.h"

namespace moorage::core::gpu {

struct nothing_kernel {
    static constexpr uint32_t threads = 32;
    template <class Team>
    MOORAGE_HOST_DEVICE void operator()(Team &) const {}
};

template <class Device>
void launch_nothing(Device &device) {
    device.launch(nothing_kernel{}, 1, 1, 1, 0);
}

template <class Device>
void launch_product(Device &device, const product_item &item) {
    if (item.count > few_tokens && device.product_of_many(item, item.count)) return;
    with_any_type(item.weights.type, [&](auto type) {
        const auto of_rows = [&](auto kernel) {
            kernel.items[kernel.count++] = item;
            kernel.make_room(item);
            device.launch(kernel, ceil_div(kernel.groups_of(item), kernel.threads / lanes), 1, 1,
                          kernel.shared_bytes());
        };
        using tiles = tile_kernel<type(), false>;
        if (item.count > few_tokens)
            device.launch(tiles{item}, ceil_div(item.rows, tiles::side), 1,
                          ceil_div(item.count, tiles::side), tiles::shared_bytes);
        else if (item.count > 1)
            of_rows(row_kernel<type(), few_tokens>{});
        else
            of_rows(row_kernel<type(), 1>{});
    });
}

}  // namespace moorage::core::gpu
