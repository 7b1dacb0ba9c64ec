// slim_greedy.cpp - the copy that saves most per byte, again and again (SlimCaching, Algorithm 1).
//
// Over all experts and servers with room for them: the largest gain / size is placed, gains are
// kept up to date, and so on while something that saves anything fits. Ties: smallest expert, then
// smallest server. The printed loop neither checks that the item fits nor goes on when one server
// is full; this one does both. A gain depends only on the holders of the expert and of those chosen
// together with it, so a pick asks anew for these alone, whether they rose or fell: the result is
// that of asking for all of them every time. (Waiting until an old gain comes to the top, as lazy
// greedy usually does, would be exact for K = 1 only; beyond, gains also rise.)
//
// Cost: experts * servers gains, then for each pick servers * (1 + experts that share a set with
// it); choosing is a walk up a tree. Guarantee: half of the optimum for K = 1, one device a server
// and equal sizes (the servers are a partition matroid; the paper's 1 - 1/e holds for one server).
// With different sizes or K > 1 there is none.
#include "slim_parts.hpp"

namespace {

using moorage::copies;
using moorage::device_room;
using moorage::latency_model;

// The largest of many changing values; of equals the first.
class tournament {
public:
    static constexpr double out = -std::numeric_limits<double>::infinity();

    explicit tournament(size_t count) : leaves_(std::bit_ceil(std::max<size_t>(count, 1))) {
        value_.assign(leaves_, out);
        winner_.resize(2 * leaves_);
        for (size_t i = 0; i < leaves_; ++i) winner_[leaves_ + i] = static_cast<uint32_t>(i);
    }
    double &operator[](size_t index) { return value_[index]; }
    void play_all() {
        for (size_t node = leaves_ - 1; node > 0; --node) play(node);
    }
    void change(size_t index, double value) {
        value_[index] = value;
        for (size_t node = (leaves_ + index) / 2; node > 0; node /= 2) play(node);
    }
    uint32_t best() const { return leaves_ == 1 ? 0 : winner_[1]; }
    double best_value() const { return value_[best()]; }

private:
    void play(size_t node) {
        const uint32_t left = winner_[2 * node], right = winner_[2 * node + 1];
        winner_[node] = value_[right] > value_[left] ? right : left;
    }
    size_t leaves_;
    std::vector<double> value_;
    std::vector<uint32_t> winner_;
};

class slim_greedy : public moorage::slim::planner {
public:
    static constexpr moorage::about about{
        .name = "slim_greedy",
        .summary = "places the copy that saves most seconds per byte, again and again",
        .source = "SlimCaching, Algorithm 1"};

    explicit slim_greedy(const moorage::setup &) {}

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, copies &out) {
        latency_model model(cluster, demand);
        device_room room(model);
        facts_.clear();
        const uint32_t servers = cluster.servers;
        tournament ratios(size_t{model.experts()} * servers);
        uint64_t marginals = 0;
        const auto ratio = [&](uint32_t x, uint32_t n) {
            const uint32_t device = room.find(x, n);
            if (device == latency_model::none || model.holds(x, n)) return tournament::out;
            ++marginals;
            const double gain = model.gain(x, device);
            return gain < moorage::slim::gain_min_s ? tournament::out
                                                    : gain / static_cast<double>(model.bytes(x));
        };
        for (uint32_t x = 0; x < model.experts(); ++x)
            for (uint32_t n = 0; n < servers; ++n) ratios[size_t{x} * servers + n] = ratio(x, n);
        ratios.play_all();
        std::vector<uint32_t> changed, seen(model.experts(), 0);
        uint32_t pick = 0;
        std::vector<uint32_t> target;  // [M, N] first device with room for the model's experts
        for (uint32_t m = 0; m < demand.models; ++m)
            for (uint32_t n = 0; n < servers; ++n)
                target.push_back(room.find(demand.host_model_first[m], n));
        while (ratios.best_value() > 0) {
            const uint32_t x = ratios.best() / servers, n = ratios.best() % servers;
            const uint32_t device = room.find(x, n);
            if (device == latency_model::none) {  // full since its gain was asked for
                ratios.change(ratios.best(), tournament::out);
                continue;
            }
            model.add(x, device);
            room.take(x, device);
            changed.assign(1, x);
            seen[x] = ++pick;
            model.for_partners(x, [&](uint32_t other) {
                if (seen[other] != pick) changed.push_back(other);
                seen[other] = pick;
            });
            for (const uint32_t other : changed)
                for (uint32_t at = 0; at < servers; ++at)
                    ratios.change(size_t{other} * servers + at, ratio(other, at));
            if (model.device_begin(n) + 1 == model.device_begin(n + 1)) continue;
            // Experts go to another device of the server, of another speed perhaps, from now on.
            for (uint32_t m = 0; m < demand.models; ++m) {
                const uint32_t first = demand.host_model_first[m];
                const uint32_t next = room.find(first, n);
                if (next == target[size_t{m} * servers + n]) continue;
                target[size_t{m} * servers + n] = next;
                for (uint32_t other = first; other < demand.host_model_first[m + 1]; ++other)
                    ratios.change(size_t{other} * servers + n, ratio(other, n));
            }
        }
        moorage::slim::finish(about.name, model, room, out, facts_);
        facts_.add("guarantee", has_guarantee(model) ? 0.5 : 0);
        facts_.add("marginals", static_cast<double>(marginals));
    }

private:
    static bool has_guarantee(const latency_model &model) {
        uint64_t size = 0;
        bool equal = model.cluster().devices == model.cluster().servers;
        for (uint32_t m = 0; m < model.demand().models; ++m) {
            if (!moorage::slim::wanted(model.demand(), m)) continue;
            if (size == 0) size = model.demand().host_expert_bytes[m];
            equal = equal && size == model.demand().host_expert_bytes[m] &&
                    model.demand().host_model_top_k[m] == 1;
        }
        return equal;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.placement.slim_greedy", "1.0.0", slim_greedy)
