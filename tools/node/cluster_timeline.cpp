// cluster_timeline.cpp - finds the way between clocks, then rows for spans that overlap.
#include "tools/node/cluster_timeline.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/base/visible.h"
#include "tools/node/json_fields.h"

namespace moorage::core {

namespace {

constexpr const char *columns[] = {"kind",    "end",      "server",     "layer",
                                   "experts", "rows",     "request",    "home",
                                   "id",      "begun_ns", "started_ns", "ended_ns"};
constexpr size_t servers_max = 4096, word_bytes_max = 256;

json row_of(const node_span &span) {
    return {static_cast<uint32_t>(span.kind),
            static_cast<uint32_t>(span.end),
            span.server,
            span.layer,
            span.experts,
            span.rows,
            span.request,
            span.home,
            span.id,
            span.begun_ns,
            span.started_ns,
            span.ended_ns};
}

bool read_row(const json &row, node_span &span) {
    if (!row.is_array() || row.size() != std::size(columns)) return false;
    for (const json &value : row)
        if (!value.is_number_unsigned()) return false;
    const auto number = [&](size_t column) { return row[column].get<uint64_t>(); };
    const auto narrow = [&](size_t column) {
        return static_cast<uint32_t>(std::min<uint64_t>(number(column), UINT32_MAX));
    };
    if (number(0) >= span_kind_names.size() || number(1) >= span_end_names.size()) return false;
    span = {static_cast<span_kind>(number(0)),
            static_cast<span_end>(number(1)),
            narrow(2),
            narrow(3),
            narrow(4),
            narrow(5),
            number(6),
            number(7),
            number(8),
            number(9),
            number(10),
            number(11)};
    // Times of a steady clock, which began with its machine.
    return span.begun_ns <= span.started_ns && span.started_ns <= span.ended_ns &&
           span.ended_ns < uint64_t{1} << 62;
}

// A printable word of a line, with bounded length.
std::string word_of(const std::string &text) {
    std::string word = visible(text).substr(0, word_bytes_max);
    std::ranges::replace_if(
        word, [](char c) { return c == '\n' || c == '\t'; }, ' ');
    return word;
}

std::string word_at(const json &object, const char *key) { return word_of(text_at(object, key)); }

void read_offsets(const json &object, node_spans &node) {
    constexpr int64_t offset_ns_max = int64_t{1} << 62;
    for (const json &entry : list_at(object, "offsets")) {
        if (!entry.is_object() || node.offsets.size() == servers_max) continue;
        const auto field = entry.find("offset_ns");
        if (field == entry.end() || !field->is_number_integer()) continue;
        const auto offset_ns = field->get<int64_t>();
        const uint64_t error_ns = number_at(entry, "error_ns");
        if (offset_ns > offset_ns_max || offset_ns < -offset_ns_max || error_ns == 0) continue;
        node.offsets.push_back({word_at(entry, "server"),
                                {offset_ns, std::min<uint64_t>(error_ns, offset_ns_max), 0}});
    }
}

// A difference that is known between two clocks: nodes by their places, the asker after them.
struct known_offset {
    size_t source, target;
    clock_sample sample;
};

std::vector<known_offset> known_offsets(std::span<const node_spans> nodes) {
    std::vector<known_offset> offsets;
    const auto add_both = [&](size_t source, size_t target, const clock_sample &sample) {
        offsets.push_back({source, target, sample});
        offsets.push_back({target, source, {-sample.offset_ns, sample.error_ns, 0}});
    };
    for (size_t node = 0; node < nodes.size(); ++node) {
        for (const node_spans::offset &offset : nodes[node].offsets)
            for (size_t peer = 0; peer < nodes.size(); ++peer)
                if (nodes[peer].server == offset.server && peer != node)
                    add_both(node, peer, offset.sample);
        if (nodes[node].answered_ns != 0)
            add_both(nodes.size(), node,
                     clock_sample_of(nodes[node].asked_ns, nodes[node].now_ns, nodes[node].now_ns,
                                     nodes[node].answered_ns));
    }
    return offsets;
}

// Rows that hold spans which overlap: each goes to the first that is free.
class lanes {
public:
    lanes(timeline &output, std::string process, std::string name)
        : output_(output), process_(std::move(process)), name_(std::move(name)) {}
    uint32_t operator()(uint64_t begun_ns, uint64_t ended_ns) {
        size_t lane = 0;
        while (lane < free_ns_.size() && free_ns_[lane] > begun_ns) ++lane;
        if (lane == free_ns_.size()) free_ns_.push_back(0);
        free_ns_[lane] = ended_ns;
        return output_.track(lane == 0 ? name_ : format("{} ({})", name_, lane + 1), process_);
    }

private:
    timeline &output_;
    const std::string process_, name_;
    std::vector<uint64_t> free_ns_;
};

// The number of a call. It is the same where the call was made and where it was served. It has 53
// bits, because readers of JSON may have no more.
uint64_t flow_of(const node_span &span) {
    const uint64_t number = (span.home + span.id * 0xff51afd7ed558ccd) * 0x9e3779b97f4a7c15 >> 11;
    return number == 0 ? 1 : number;
}

class drawing {
public:
    drawing(timeline &output, std::span<const node_spans> nodes,
            const cluster_timeline_choice &choice)
        : output_(output), nodes_(nodes), choice_(choice), clocks_(common_clock(nodes)) {
        for (size_t node = 0; node < nodes.size(); ++node)
            for (const node_span &span : nodes[node].spans)
                if (span.kind == span_kind::call && is_home(node) && is_asked(span))
                    calls_.insert({span.home, span.id});
        for (size_t node = 0; node < nodes.size(); ++node)
            for (const node_span &span : nodes[node].spans)
                if (is_chosen(node, span))
                    first_ns_ = std::min(first_ns_, common_ns(node, span.begun_ns));
    }
    uint64_t operator()() {
        for (size_t node = 0; node < nodes_.size(); ++node) draw(node);
        return drawn_;
    }

private:
    bool is_home(size_t node) const {
        return choice_.home.empty() || nodes_[node].server == choice_.home;
    }
    bool is_asked(const node_span &span) const {
        return choice_.request == 0 || span.request == choice_.request;
    }
    bool is_chosen(size_t node, const node_span &span) const {
        if (span.kind == span_kind::served)
            return calls_.contains({span.home, span.id}) || draws_everything();
        return is_home(node) && is_asked(span);
    }
    bool draws_everything() const { return choice_.home.empty() && choice_.request == 0; }
    // By the first node's clock.
    int64_t common_ns(size_t node, uint64_t ns) const {
        return static_cast<int64_t>(ns) - clocks_[node].offset_ns;
    }
    std::string name_of(size_t node, uint32_t server) const {
        const auto &names = nodes_[node].servers;
        return server < names.size() ? names[server] : "no server";
    }
    std::string process_of(size_t node) const {
        const uint64_t error_ns = clocks_[node].error_ns;
        return error_ns == 0 ? nodes_[node].server
                             : format("{} (clock within {} us)", nodes_[node].server,
                                      (error_ns + 999) / 1000);
    }
    void draw(size_t node);
    void draw_span(size_t node, const node_span &span, std::map<std::string, lanes> &rows);

    timeline &output_;
    const std::span<const node_spans> nodes_;
    const cluster_timeline_choice choice_;
    const std::vector<clock_sample> clocks_;
    std::set<std::pair<uint64_t, uint64_t>> calls_;  // of the home that is looked at
    int64_t first_ns_ = INT64_MAX;
    uint64_t drawn_ = 0;
};

void drawing::draw(size_t node) {
    std::vector<const node_span *> chosen;
    for (const node_span &span : nodes_[node].spans)
        if (is_chosen(node, span)) chosen.push_back(&span);
    std::ranges::stable_sort(
        chosen, {}, [](const node_span *span) { return std::pair(span->kind, span->begun_ns); });
    std::map<std::string, lanes> rows;
    for (const node_span *const span : chosen) draw_span(node, *span, rows);
    drawn_ += chosen.size();
}

void drawing::draw_span(size_t node, const node_span &span, std::map<std::string, lanes> &rows) {
    const std::string peer = name_of(node, span.server);
    const std::string row = span.kind == span_kind::request ? "requests"
                            : span.kind == span_kind::call  ? "calls to " + peer
                                                            : "computes for others";
    auto lane = rows.try_emplace(row, output_, process_of(node), row).first;
    const auto begun_ns = static_cast<uint64_t>(common_ns(node, span.begun_ns) - first_ns_);
    const uint64_t duration_ns = span.ended_ns - span.begun_ns;
    const uint32_t track = lane->second(begun_ns, begun_ns + duration_ns);
    const char *const end = span_end_names[static_cast<size_t>(span.end)];
    const uint64_t waited_ns = span.started_ns - span.begun_ns;
    if (span.kind == span_kind::request)
        return output_.span(track, format("request {}", span.request), begun_ns, duration_ns,
                            {{"asked tokens", span.rows},
                             {"written tokens", span.experts},
                             {"waited us", waited_ns / 1000},
                             {"end", end}});
    const bool serves = span.kind == span_kind::served;
    output_.span(track, format("layer {}", span.layer), begun_ns, duration_ns,
                 {{"request", span.request},
                  {serves ? "for" : "to", std::string_view(peer)},
                  {"experts", span.experts},
                  {"rows", span.rows},
                  {"end", end}},
                 {.id = flow_of(span), .ends = serves});
    if (serves && span.end == span_end::done)
        output_.span(track, "computes", begun_ns + waited_ns, span.ended_ns - span.started_ns);
}

}  // namespace

json to_json(const node_spans &node) {
    json offsets = json::array(), rows = json::array();
    for (const node_spans::offset &offset : node.offsets)
        offsets.push_back({{"server", offset.server},
                           {"offset_ns", offset.sample.offset_ns},
                           {"error_ns", offset.sample.error_ns}});
    for (const node_span &span : node.spans) rows.push_back(row_of(span));
    return {{"server", node.server}, {"incarnation", node.incarnation},
            {"now_ns", node.now_ns}, {"servers", node.servers},
            {"offsets", offsets},    {"columns", columns},
            {"spans", rows}};
}

result<node_spans> read_node_spans(const json &object) {
    if (!object.is_object()) return error{"what it answers at /spans is no object"};
    if (object.find("columns") == object.end() || object["columns"] != json(columns))
        return error{
            "its spans have other columns than this program knows; use one version on all nodes"};
    node_spans node;
    node.server = word_at(object, "server");
    node.incarnation = number_at(object, "incarnation");
    node.now_ns = std::min(number_at(object, "now_ns"), uint64_t{1} << 62);
    for (const json &name : list_at(object, "servers"))
        if (name.is_string() && node.servers.size() < servers_max)
            node.servers.push_back(word_of(name.get_ref<const std::string &>()));
    read_offsets(object, node);
    for (const json &row : list_at(object, "spans")) {
        node_span span;
        if (node.spans.size() == span_log::spans_max || !read_row(row, span))
            return error{format("span {} is not one that a node makes", node.spans.size())};
        node.spans.push_back(span);
    }
    return node;
}

std::vector<clock_sample> common_clock(std::span<const node_spans> nodes) {
    const std::vector<known_offset> offsets = known_offsets(nodes);
    constexpr uint64_t far = UINT64_MAX;
    std::vector<uint64_t> error_ns(nodes.size() + 1, far);
    std::vector<int64_t> offset_ns(nodes.size() + 1, 0);
    std::vector<uint8_t> settled(nodes.size() + 1, 0);
    if (nodes.empty()) return {};
    error_ns[0] = 0;
    for (;;) {
        size_t next = nodes.size() + 1;
        for (size_t i = 0; i <= nodes.size(); ++i)
            if (!settled[i] && error_ns[i] != far &&
                (next > nodes.size() || error_ns[i] < error_ns[next]))
                next = i;
        if (next > nodes.size()) break;
        settled[next] = 1;
        for (const known_offset &offset : offsets) {
            const uint64_t total_error_ns = error_ns[next] + offset.sample.error_ns;
            if (offset.source != next || total_error_ns >= error_ns[offset.target]) continue;
            error_ns[offset.target] = total_error_ns;
            offset_ns[offset.target] = offset_ns[next] + offset.sample.offset_ns;
        }
    }
    std::vector<clock_sample> clocks(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i)
        clocks[i] = {offset_ns[i], error_ns[i] == far ? 0 : error_ns[i], 0};
    return clocks;
}

uint64_t draw_cluster(timeline &output, std::span<const node_spans> nodes,
                      const cluster_timeline_choice &choice) {
    return drawing(output, nodes, choice)();
}

}  // namespace moorage::core
