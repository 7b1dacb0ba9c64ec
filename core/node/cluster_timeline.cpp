// cluster_timeline.cpp - finds the way between clocks, then rows for spans that overlap.
#include "core/node/cluster_timeline.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/base/visible.h"
#include "core/node/json_fields.h"

namespace moorage::core {

namespace {

constexpr const char *columns[] = {"kind",    "end",      "server",     "layer",
                                   "experts", "rows",     "request",    "home",
                                   "id",      "begun_ns", "started_ns", "ended_ns"};
constexpr size_t servers_max = 4096, word_bytes_max = 256;

json row_of(const node_span &of) {
    return {static_cast<uint32_t>(of.kind),
            static_cast<uint32_t>(of.end),
            of.server,
            of.layer,
            of.experts,
            of.rows,
            of.request,
            of.home,
            of.id,
            of.begun_ns,
            of.started_ns,
            of.ended_ns};
}

bool read_row(const json &from, node_span &out) {
    if (!from.is_array() || from.size() != std::size(columns)) return false;
    for (const json &one : from)
        if (!one.is_number_unsigned()) return false;
    const auto at = [&](size_t column) { return from[column].get<uint64_t>(); };
    const auto narrow = [&](size_t column) {
        return static_cast<uint32_t>(std::min<uint64_t>(at(column), UINT32_MAX));
    };
    if (at(0) >= span_kind_names.size() || at(1) >= span_end_names.size()) return false;
    out = {static_cast<span_kind>(at(0)),
           static_cast<span_end>(at(1)),
           narrow(2),
           narrow(3),
           narrow(4),
           narrow(5),
           at(6),
           at(7),
           at(8),
           at(9),
           at(10),
           at(11)};
    // Times of a steady clock, which began with its machine.
    return out.begun_ns <= out.started_ns && out.started_ns <= out.ended_ns &&
           out.ended_ns < uint64_t{1} << 62;
}

// A printable word of a line, with bounded length.
std::string word_of(const std::string &said) {
    std::string made = visible(said).substr(0, word_bytes_max);
    std::ranges::replace_if(
        made, [](char c) { return c == '\n' || c == '\t'; }, ' ');
    return made;
}

std::string word_at(const json &from, const char *key) { return word_of(text_at(from, key)); }

void read_offsets(const json &from, node_spans &out) {
    constexpr int64_t offset_ns_max = int64_t{1} << 62;
    for (const json &one : list_at(from, "offsets")) {
        if (!one.is_object() || out.offsets.size() == servers_max) continue;
        const auto at = one.find("offset_ns");
        if (at == one.end() || !at->is_number_integer()) continue;
        const auto offset_ns = at->get<int64_t>();
        const uint64_t error_ns = number_at(one, "error_ns");
        if (offset_ns > offset_ns_max || offset_ns < -offset_ns_max || error_ns == 0) continue;
        out.offsets.push_back(
            {word_at(one, "server"), {offset_ns, std::min<uint64_t>(error_ns, offset_ns_max), 0}});
    }
}

// A difference that is known between two clocks: nodes by their places, the asker after them.
struct known_offset {
    size_t from, to;
    clock_sample is;
};

std::vector<known_offset> known_offsets(std::span<const node_spans> all) {
    std::vector<known_offset> made;
    const auto both = [&](size_t from, size_t to, const clock_sample &is) {
        made.push_back({from, to, is});
        made.push_back({to, from, {-is.offset_ns, is.error_ns, 0}});
    };
    for (size_t node = 0; node < all.size(); ++node) {
        for (const node_spans::offset &one : all[node].offsets)
            for (size_t other = 0; other < all.size(); ++other)
                if (all[other].server == one.server && other != node) both(node, other, one.is);
        if (all[node].answered_ns != 0)
            both(all.size(), node,
                 clock_sample_of(all[node].asked_ns, all[node].now_ns, all[node].now_ns,
                                 all[node].answered_ns));
    }
    return made;
}

// Rows that hold spans which overlap: each goes to the first that is free.
class lanes {
public:
    lanes(timeline &to, std::string process, std::string name)
        : to_(to), process_(std::move(process)), name_(std::move(name)) {}
    uint32_t operator()(uint64_t begun_ns, uint64_t ended_ns) {
        size_t lane = 0;
        while (lane < free_ns_.size() && free_ns_[lane] > begun_ns) ++lane;
        if (lane == free_ns_.size()) free_ns_.push_back(0);
        free_ns_[lane] = ended_ns;
        return to_.track(lane == 0 ? name_ : format("{} ({})", name_, lane + 1), process_);
    }

private:
    timeline &to_;
    const std::string process_, name_;
    std::vector<uint64_t> free_ns_;
};

// The number of a call. It is the same where the call was made and where it was served. It has 53
// bits, because readers of JSON may have no more.
uint64_t flow_of(const node_span &of) {
    const uint64_t made = (of.home + of.id * 0xff51afd7ed558ccd) * 0x9e3779b97f4a7c15 >> 11;
    return made == 0 ? 1 : made;
}

class drawing {
public:
    drawing(timeline &to, std::span<const node_spans> all, const cluster_timeline_choice &of)
        : to_(to), all_(all), of_(of), clocks_(common_clock(all)) {
        for (size_t node = 0; node < all.size(); ++node)
            for (const node_span &one : all[node].spans)
                if (one.kind == span_kind::call && is_home(node) && is_asked(one))
                    calls_.insert({one.home, one.id});
        for (size_t node = 0; node < all.size(); ++node)
            for (const node_span &one : all[node].spans)
                if (is_chosen(node, one)) first_ns_ = std::min(first_ns_, at(node, one.begun_ns));
    }
    uint64_t operator()() {
        for (size_t node = 0; node < all_.size(); ++node) draw(node);
        return drawn_;
    }

private:
    bool is_home(size_t node) const { return of_.home.empty() || all_[node].server == of_.home; }
    bool is_asked(const node_span &one) const {
        return of_.request == 0 || one.request == of_.request;
    }
    bool is_chosen(size_t node, const node_span &one) const {
        if (one.kind == span_kind::served) return calls_.contains({one.home, one.id}) || is_all();
        return is_home(node) && is_asked(one);
    }
    bool is_all() const { return of_.home.empty() && of_.request == 0; }
    // By the first node's clock.
    int64_t at(size_t node, uint64_t ns) const {
        return static_cast<int64_t>(ns) - clocks_[node].offset_ns;
    }
    std::string name_of(size_t node, uint32_t server) const {
        const auto &names = all_[node].servers;
        return server < names.size() ? names[server] : "no server";
    }
    std::string process_of(size_t node) const {
        const uint64_t error_ns = clocks_[node].error_ns;
        return error_ns == 0
                   ? all_[node].server
                   : format("{} (clock within {} us)", all_[node].server, (error_ns + 999) / 1000);
    }
    void draw(size_t node);
    void draw_one(size_t node, const node_span &one, std::map<std::string, lanes> &rows);

    timeline &to_;
    const std::span<const node_spans> all_;
    const cluster_timeline_choice of_;
    const std::vector<clock_sample> clocks_;
    std::set<std::pair<uint64_t, uint64_t>> calls_;  // of the home that is looked at
    int64_t first_ns_ = INT64_MAX;
    uint64_t drawn_ = 0;
};

void drawing::draw(size_t node) {
    std::vector<const node_span *> chosen;
    for (const node_span &one : all_[node].spans)
        if (is_chosen(node, one)) chosen.push_back(&one);
    std::ranges::stable_sort(
        chosen, {}, [](const node_span *one) { return std::pair(one->kind, one->begun_ns); });
    std::map<std::string, lanes> rows;
    for (const node_span *const one : chosen) draw_one(node, *one, rows);
    drawn_ += chosen.size();
}

void drawing::draw_one(size_t node, const node_span &one, std::map<std::string, lanes> &rows) {
    const std::string other = name_of(node, one.server);
    const std::string row = one.kind == span_kind::request ? "requests"
                            : one.kind == span_kind::call  ? "calls to " + other
                                                           : "computes for others";
    auto lane = rows.try_emplace(row, to_, process_of(node), row).first;
    const auto begun_ns = static_cast<uint64_t>(at(node, one.begun_ns) - first_ns_);
    const uint64_t all_ns = one.ended_ns - one.begun_ns;
    const uint32_t track = lane->second(begun_ns, begun_ns + all_ns);
    const char *const end = span_end_names[static_cast<size_t>(one.end)];
    const uint64_t waited_ns = one.started_ns - one.begun_ns;
    if (one.kind == span_kind::request)
        return to_.span(track, format("request {}", one.request), begun_ns, all_ns,
                        {{"asked tokens", one.rows},
                         {"written tokens", one.experts},
                         {"waited us", waited_ns / 1000},
                         {"end", end}});
    const bool serves = one.kind == span_kind::served;
    to_.span(track, format("layer {}", one.layer), begun_ns, all_ns,
             {{"request", one.request},
              {serves ? "for" : "to", std::string_view(other)},
              {"experts", one.experts},
              {"rows", one.rows},
              {"end", end}},
             {.id = flow_of(one), .ends = serves});
    if (serves && one.end == span_end::done)
        to_.span(track, "computes", begun_ns + waited_ns, one.ended_ns - one.started_ns);
}

}  // namespace

json to_json(const node_spans &of) {
    json offsets = json::array(), rows = json::array();
    for (const node_spans::offset &one : of.offsets)
        offsets.push_back({{"server", one.server},
                           {"offset_ns", one.is.offset_ns},
                           {"error_ns", one.is.error_ns}});
    for (const node_span &one : of.spans) rows.push_back(row_of(one));
    return {{"server", of.server}, {"incarnation", of.incarnation},
            {"now_ns", of.now_ns}, {"servers", of.servers},
            {"offsets", offsets},  {"columns", columns},
            {"spans", rows}};
}

result<node_spans> read_node_spans(const json &from) {
    if (!from.is_object()) return error{"what it answers at /spans is no object"};
    if (from.find("columns") == from.end() || from["columns"] != json(columns))
        return error{
            "its spans have other columns than this program knows; use one version on all nodes"};
    node_spans made;
    made.server = word_at(from, "server");
    made.incarnation = number_at(from, "incarnation");
    made.now_ns = std::min(number_at(from, "now_ns"), uint64_t{1} << 62);
    for (const json &one : list_at(from, "servers"))
        if (one.is_string() && made.servers.size() < servers_max)
            made.servers.push_back(word_of(one.get_ref<const std::string &>()));
    read_offsets(from, made);
    for (const json &one : list_at(from, "spans")) {
        node_span span;
        if (made.spans.size() == span_log::spans_max || !read_row(one, span))
            return error{format("span {} is not one that a node makes", made.spans.size())};
        made.spans.push_back(span);
    }
    return made;
}

std::vector<clock_sample> common_clock(std::span<const node_spans> all) {
    const std::vector<known_offset> known = known_offsets(all);
    constexpr uint64_t far = UINT64_MAX;
    std::vector<uint64_t> error_ns(all.size() + 1, far);
    std::vector<int64_t> offset_ns(all.size() + 1, 0);
    std::vector<uint8_t> done(all.size() + 1, 0);
    if (all.empty()) return {};
    error_ns[0] = 0;
    for (;;) {
        size_t next = all.size() + 1;
        for (size_t i = 0; i <= all.size(); ++i)
            if (!done[i] && error_ns[i] != far &&
                (next > all.size() || error_ns[i] < error_ns[next]))
                next = i;
        if (next > all.size()) break;
        done[next] = 1;
        for (const known_offset &one : known) {
            const uint64_t by_ns = error_ns[next] + one.is.error_ns;
            if (one.from != next || by_ns >= error_ns[one.to]) continue;
            error_ns[one.to] = by_ns;
            offset_ns[one.to] = offset_ns[next] + one.is.offset_ns;
        }
    }
    std::vector<clock_sample> made(all.size());
    for (size_t i = 0; i < all.size(); ++i)
        made[i] = {offset_ns[i], error_ns[i] == far ? 0 : error_ns[i], 0};
    return made;
}

uint64_t draw_cluster(timeline &to, std::span<const node_spans> all,
                      const cluster_timeline_choice &of) {
    return drawing(to, all, of)();
}

}  // namespace moorage::core
