// hostile.cpp - a policy of every kind that does its work, and one forbidden deed in one call. `in`
// names the call. `does` names the deed (deeds.hpp, or write_...: a write to lent memory). `after`
// is the number of good calls before. HOSTILE_DOES and HOSTILE_IN replace parameters that nobody
// can set, as in the conformance kit. HOSTILE_CONSTRUCTORS does the deed when the library is
// opened.
#include <moorage/moorage.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include "deeds.hpp"

namespace {

// HOSTILE_DESTRUCTORS names the deed that the destructor of a static variable does.
struct last_act {
    ~last_act() {
        const char *deed = std::getenv("HOSTILE_DESTRUCTORS");
        if (deed) hostile::act(deed);
    }
} const last_one;

const bool opened = [] {
    const char *deed = std::getenv("HOSTILE_CONSTRUCTORS");
    if (deed) hostile::act(deed);
    return true;
}();

class hostile_policy {
public:
    static constexpr moorage::about about{.name = "hostile",
                                          .summary = "of every kind, and none to be trusted",
                                          .flags = MOORAGE_POLICY_LOSSY};
    static constexpr moorage::param params[] = {
        moorage::text("does", "nothing", nullptr, "the deed"),
        moorage::text("in", "nowhere", nullptr, "the call"),
        moorage::integer("after", 0, 0, 1000000, "such calls before it")};

    explicit hostile_policy(const moorage::setup &setup)
        : host_(setup.host),
          deed_(environment_or("HOSTILE_DOES", setup.text("does"))),
          call_(environment_or("HOSTILE_IN", setup.text("in"))),
          calls_before_(setup.integer("after")) {
        enter("create");
    }
    ~hostile_policy() { enter("destroy"); }
    void activate(const moorage::limits &limits) {
        enter("activate");
        layers_ = limits.layers, experts_ = limits.experts, pools_ = limits.pools;
        view_ = host_.residency();
        waiting_.assign(limits.transfers_max, {});
        if (deed_ == "write_limits") hostile::overwrite(&limits.layers);
    }
    void deactivate() { enter("deactivate"); }
    void reset() { enter("reset"); }
    void observe(const moorage::step &step) {
        enter("observe");
        write(step);
    }

    uint32_t select(const moorage::step &step, moorage::route &route) {
        enter("select");
        std::copy_n(step.host_chosen, size_t{step.token_count} * step.top_k, route.host_experts);
        write(step);
        if (deed_ == "write_beyond") std::fill_n(route.host_experts, 1 << 20, 0u);
        if (deed_ == "abstain") return 0;
        return step.token_count;
    }

    void victims(const moorage::room &room, moorage::pages &victims) {
        enter("victims");
        for (uint32_t page = 0; page < layers_ * experts_ && !victims.full(); ++page)
            if ((pools_ == 1 || page / experts_ == room.pool) &&
                moorage::evictable(view_->host_state[page]))
                victims.push(page);
    }
    bool admit(const moorage::admission &) {
        enter("admit");
        return true;
    }
    void on_load(uint32_t, uint32_t, int32_t) { enter("on_load"); }
    void on_evict(uint32_t, int32_t) { enter("on_evict"); }
    void fill(const moorage::room &, moorage::pages &) { enter("fill"); }

    bool plan(const moorage::budget_request &request, moorage::budget_plan &budget) {
        enter("budget_plan");
        if (deed_ == "write_request") hostile::overwrite(request.host_slots);
        for (uint32_t layer = 0; layer < request.layers; ++layer)
            budget.host_slots[layer] = request.slots / request.layers;
        return true;
    }
    uint64_t interval() {
        enter("interval");
        return 10;
    }

    uint32_t horizon() {
        enter("horizon");
        return 1;
    }
    uint32_t prediction() {
        enter("prediction");
        return MOORAGE_FROM_ACTIVATION;
    }
    uint32_t predict(const moorage::step &, uint32_t, uint32_t, std::span<uint32_t> experts,
                     std::span<float> scores) {
        enter("predict");
        experts[0] = 1, scores[0] = 1;
        return 1;
    }
    void plan(const moorage::step &, const moorage::forecast &forecast, moorage::orders &orders) {
        enter("prefetch_plan");
        if (deed_ == "write_forecast") hostile::overwrite(forecast.host_experts);
        const uint32_t page = forecast.host_layers[0] * experts_ + forecast.host_experts[0];
        if (view_->host_state[page] == 0) orders.push(page, MOORAGE_WHOLE);
    }
    void outcome(const moorage::prefetch_outcome &) { enter("prefetch_outcome"); }

    uint32_t assign(const moorage::step &step, const moorage::items &items,
                    std::span<uint32_t> item_devices, std::span<uint32_t>) {
        enter("assign");
        write(step);
        if (deed_ == "write_items") hostile::overwrite(items.host_load_ns);
        if (deed_ == "write_table") hostile::overwrite(&items.count);
        if (deed_ == "abstain") return 0;
        std::copy_n(items.host_device, items.count, item_devices.begin());
        return items.count;
    }
    void outcome(const moorage::dispatched &) { enter("dispatch_outcome"); }

    void submit(const moorage::transfer &transfer) {
        enter("submit");
        waiting_[transfer.id] = {transfer.bytes, transfer.link};
    }
    void cancel(uint32_t id) {
        enter("cancel");
        waiting_[id].bytes = 0;
    }
    void promote(uint32_t, int32_t) { enter("promote"); }
    bool next(uint32_t link, moorage::piece &piece) {
        enter("next");
        for (uint32_t id = 0; id < waiting_.size(); ++id) {
            if (waiting_[id].bytes == 0 || waiting_[id].link != link) continue;
            piece.id = id;
            piece.bytes = deed_ == "byte_by_byte" ? 1 : waiting_[id].bytes;
            waiting_[id].bytes -= piece.bytes;
            return true;
        }
        return false;
    }

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, moorage::copies &copies) {
        enter("placement_plan");
        if (deed_ == "write_cluster") hostile::overwrite(cluster.host_device_bytes);
        if (deed_ == "write_demand") hostile::overwrite(demand.host_frequency);
        // Everything, wherever there is room.
        std::vector<uint64_t> room(cluster.host_device_bytes,
                                   cluster.host_device_bytes + cluster.devices);
        for (uint32_t model = 0; model < demand.models; ++model)
            for (uint32_t expert = demand.host_model_first[model];
                 expert < demand.host_model_first[model + 1]; ++expert)
                for (uint32_t device = 0; device < cluster.devices; ++device) {
                    if (room[device] < demand.host_expert_bytes[model]) continue;
                    room[device] -= demand.host_expert_bytes[model];
                    copies.push(expert, device);
                    break;
                }
    }

private:
    struct transfer {
        uint64_t bytes = 0;
        uint32_t link = 0;
    };

    static std::string environment_or(const char *variable, std::string_view fallback) {
        const char *value = std::getenv(variable);
        return value ? value : std::string(fallback);
    }
    void enter(std::string_view call) {
        if (call_ != call || calls_before_-- != 0) return;
        hostile::act(deed_);
        if (deed_ == "write_state") hostile::overwrite(view_->host_state);
        if (deed_ == "write_slots") hostile::overwrite(view_->host_slots);
        if (deed_ == "write_used") hostile::overwrite(view_->host_used);
        if (deed_ == "write_split") hostile::overwrite(view_->host_split);
        if (deed_ == "write_view") hostile::overwrite(&view_->host_state);
        if (deed_ == "write_costs") hostile::overwrite(&host_.costs()->expert_bytes);
        if (deed_ == "set_error")
            host_.table()->set_error(host_.table(), "my last words"), std::abort();
    }
    void write(const moorage::step &step) {
        if (deed_ == "write_step") hostile::overwrite(&step.layer);
        if (deed_ == "write_chosen") hostile::overwrite(step.host_chosen);
        if (deed_ == "write_distinct") hostile::overwrite(step.host_distinct);
        if (deed_ == "write_requests") hostile::overwrite(step.host_requests);
    }

    moorage::host host_;
    const std::string deed_, call_;
    int64_t calls_before_;
    const moorage_residency *view_ = nullptr;
    uint32_t layers_ = 0, experts_ = 0, pools_ = 1;
    std::vector<transfer> waiting_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.hostile", "1.0.0", hostile_policy)
