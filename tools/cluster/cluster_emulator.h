// cluster_emulator.h - many pipelines over one virtual clock, and the network between them.
//
// A node goes on when an event of its own has happened. A home's dispatch policy may send an expert
// to another server. There the expert waits in the queue of the device that holds it. A server that
// is described by its operations a second has no queue: it computes its experts side by side. Time
// is whole nanoseconds. Events at the same time have an order: the network, then the nodes in their
// order, then servers without queues, then migrated copies whose writing into a device has ended.
// So equal runs are equal to the byte.
//
//   cluster_emulator emulator(scene, network_options, {});
//   cluster_node &node = emulator.add({device, home, model});  // the pipeline's peers and watcher
//   node.attach({&line, &executor, &gpu, &source});
//   emulator.put(copy);                                        // what the plan places
//   emulator.begin();
//   while (emulator.next_ns() <= until) emulator.step();
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tools/cluster/cluster_node.h"
#include "tools/cluster/cluster_state.h"
#include "tools/cluster/earliest.h"
#include "tools/cluster/ideal_executor.h"
#include "tools/cluster/live_cluster.h"

namespace moorage::core {

class cluster_emulator final : public live_cluster {
public:
    // `scene` is borrowed.
    cluster_emulator(const scene &scene, const network_options &network,
                     const cluster_options &options);

    uint64_t *clock() { return &state_.now_ns; }
    cluster_node &add(const home_place &place);
    std::span<const std::unique_ptr<cluster_node>> nodes() const { return nodes_; }
    const network &links() const { return state_.links; }
    network &links() { return state_.links; }

    // Adds a copy that can be called from now on. Requires: its device has room and, unless it is
    // an ideal one, a node.
    void put(const moorage_copy &copy);
    uint64_t now_ns() const override { return state_.now_ns; }
    call_figures calls() const override;
    void bring(const migration_step &step) override;
    bool take(const moorage_copy &copy) override;
    void watch(cluster_watcher *observer) override { watcher_ = observer; }

    // Starts every course.
    void begin();
    // Time of the next event. MOORAGE_NEVER: all is done, except copies that are being written and
    // that nobody waits for.
    uint64_t next_ns() const {
        const uint64_t first = next_awaited_ns();
        return first == MOORAGE_NEVER ? first : or_next_write_ns(first);
    }
    // The same, but copies that are being written count too.
    uint64_t due_ns() const { return or_next_write_ns(next_awaited_ns()); }
    void step();
    // Moves the clock. Requires: nothing happens before that time.
    void idle_until(uint64_t ns) { state_.now_ns = ns; }

private:
    friend class cluster_node;
    struct writing {  // a copy that has crossed the network and is written into its device
        uint64_t at_ns;
        uint32_t step;
        moorage_copy copy;
    };
    uint64_t next_awaited_ns() const {
        return std::min({state_.links.due(), due_.time(), side_by_side_.due()});
    }
    uint64_t or_next_write_ns(uint64_t first) const {
        for (const writing &write : writing_) first = std::min(first, write.at_ns);
        return first;
    }
    cluster_node *server_node(uint32_t server) const;  // null: its experts compute side by side
    void tell_watcher(const cluster_node &home, const moorage_step &view);
    void note_due(const cluster_node &node) { due_.set(node.calls_.number(), node.due_ns()); }
    void deliver(const delivery &arrived);
    void compute(cluster_node &home, uint32_t call);
    void side_by_side_event();
    void write(const migration_step &step);
    void end_writing();

    cluster_state state_;
    std::vector<std::unique_ptr<cluster_node>> nodes_;
    std::vector<cluster_node *> device_nodes_;     // [devices]; null: an ideal one
    earliest due_{2};                              // [nodes]
    ideal_executor side_by_side_;                  // servers without queues, and the cloud
    numbered_calls side_by_side_calls_;            // the work of these
    std::vector<migration_step> migration_steps_;  // by id
    std::vector<uint64_t> device_free_ns_;         // [devices] when the write to it ends
    std::vector<writing> writing_;                 // few: one for each device
    cluster_watcher *watcher_ = nullptr;
};

}  // namespace moorage::core
