// Goal: a page is well-formed, carries its report and needs nothing else, and a browser draws all
// of it at every width. The same holds for the page of a node. Method: a small XML checker, hostile
// texts, extreme shapes, and the carried JSON read back. If Chromium is there, it draws the pages
// at 360, 800 and 1600 pixels.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "tools/node/node_status.h"
#include "tools/node/page.h"
#include "tools/comparison/comparison.h"
#include "core/report/figure_table.h"
#include "tools/comparison/page.h"
#include "tools/comparison/page_files.h"
#include "tests/skip.h"
#include "tests/unit/toy_machine.h"

namespace page_test {

using namespace moorage::core;

namespace {

bool is_entity(std::string_view text) {
    for (const char *known : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
        if (text.starts_with(known)) return true;
    return false;
}

// The attributes of a tag: name="value", values without < and with known entities only.
bool attributes_are_sound(std::string_view tag) {
    for (size_t position = tag.find(' ');
         position != std::string_view::npos && position < tag.size();) {
        if (tag.find_first_not_of(" \n/", position) == std::string_view::npos) return true;
        const size_t equals = tag.find("=\"", position);
        if (equals == std::string_view::npos) return false;
        const size_t end = tag.find('"', equals + 2);
        if (end == std::string_view::npos) return false;
        const std::string_view value = tag.substr(equals + 2, end - equals - 2);
        for (size_t i = 0; i < value.size(); ++i)
            if (value[i] == '<' || (value[i] == '&' && !is_entity(value.substr(i)))) return false;
        position = end + 1;
    }
    return true;
}

// "" when every tag is closed in order and every text escaped, else where it goes wrong.
std::string find_flaw(std::string_view text) {
    if (text.starts_with("<!doctype html>")) text.remove_prefix(15);
    std::vector<std::string> open;
    for (size_t position = 0; position < text.size();) {
        const std::string near(text.substr(position, 60));
        if (text[position] == '&' && !is_entity(text.substr(position)))
            return "bare ampersand: " + near;
        if (text[position] == '>') return "bare >: " + near;
        if (text[position] != '<') {
            ++position;
            continue;
        }
        // The end of the tag is outside of quotes.
        bool quoted = false;
        size_t end = position + 1;
        for (; end < text.size() && (quoted || text[end] != '>'); ++end)
            if (text[end] == '"') quoted = !quoted;
        if (end == text.size()) return "unclosed tag: " + near;
        const std::string_view tag = text.substr(position + 1, end - position - 1);
        const std::string name(tag.substr(0, tag.find_first_of(" />", 1)));
        if (!attributes_are_sound(tag)) return "attributes: " + near;
        if (name.starts_with('/')) {
            if (open.empty() || open.back() != name.substr(1)) return "closes nothing: " + near;
            open.pop_back();
        } else if (!tag.ends_with('/')) {
            open.push_back(name);
        }
        position = end + 1;
    }
    return open.empty() ? "" : "left open: " + open.back();
}

size_t count_of(std::string_view text, std::string_view part) {
    size_t count = 0;
    for (size_t position = text.find(part); position != std::string_view::npos;
         position = text.find(part, position + 1))
        ++count;
    return count;
}

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

comparison_row row_of(const std::string &profile, const std::string &cache, uint64_t slots) {
    comparison_row row;
    run_report &report = row.report;
    report.tokens = 100;
    report.requests = 2;
    report.executor = "emulator";
    report.profile = profile;
    report.tpot_ms = {20 + 100 / double(slots), 20, 30};
    report.total_ms = 2000;
    report.tokens_per_s = 50;
    report.experts = {.requested = 800, .hits = 400 + slots, .misses = 400 - slots};
    report.time = {.compute = 500, .transfer = 1000, .stall = 1200, .cpu = 0, .policy = 0};
    report.causes = {{{}, {}}};
    report.causes[0][1][cause::compute] = 500'000'000;
    report.causes[0][1][cause::link] = 1'200'000'000;
    report.opt_misses = 200;
    *report.config = {{"cache", {{"plugin", cache}}}, {"memory", {{"experts", slots}}}};
    for (uint64_t layer = 0; layer < 4; ++layer) {
        report.layers.emplace_back();
        report.layers.back().experts = {
            .requested = 200, .hits = 50 * layer, .misses = 200 - 50 * layer};
    }
    row.slots = slots;
    row.experts_all = 256;
    return row;
}

comparison sample(size_t policies, const std::vector<uint64_t> &sizes,
                  const std::vector<std::string> &profiles) {
    comparison report;
    report.title = "a page";
    for (const std::string &profile : profiles)
        for (const uint64_t slots : sizes)
            for (size_t i = 0; i < policies; ++i)
                report.rows.push_back(row_of(profile, "policy" + std::to_string(i), slots));
    return report;
}

}  // namespace

TEST_CASE("the checker finds what is wrong") {
    CHECK(find_flaw("<a><b x=\"1 > 0\"/>t &amp; u</a>") == "");
    CHECK(find_flaw("<a><b></a></b>") != "");
    CHECK(find_flaw("<a>") != "");
    CHECK(find_flaw("a & b") != "");
    CHECK(find_flaw("<a x=1></a>") != "");
    CHECK(find_flaw("<a x=\"&\"></a>") != "");
    CHECK(find_flaw("a > b") != "");
}

namespace {

// Without the content of <script> and <style>, which is not XML.
std::string markup_of(const std::string &html) {
    std::string kept;
    for (size_t position = 0; position < html.size();) {
        const size_t script = html.find("<script", position), style = html.find("<style", position);
        const size_t next = std::min(script, style);
        if (next == std::string::npos) return kept + html.substr(position);
        const size_t begin = html.find('>', next) + 1;
        const size_t end = html.find(next == script ? "</script>" : "</style>", begin);
        kept += html.substr(position, begin - position);
        position = end;
    }
    return kept;
}

// The data that the page carries.
json carried_data(const std::string &html) {
    const std::string mark = "id=\"carried\">";
    const size_t begin = html.find(mark) + mark.size();
    return json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

// Two servers with two layers of four experts each, three requests' homes, a migration at 1 s.
comparison_row cluster_row(const std::string &policy, double latency_ms, uint64_t bytes) {
    comparison_row row;
    run_report &report = row.report;
    report.requests = 30;
    report.tokens = 300;
    report.executor = "emulator";
    report.profile = "cluster";
    report.bytes.network = 5'000'000;
    *report.config = {{"cluster", {{"models", {"one", "two"}}}},
                      {"placement", {{"plugin", policy}}}};
    cluster_report &cluster = report.cluster.emplace();
    cluster.bucket_s = 1;
    cluster.duration_s = 4;
    cluster.latency_ms = {latency_ms, latency_ms, latency_ms};
    cluster.over_time = {
        {1, 10, 5, 0, 0}, {0.5, 20, 5, 0, 0}, {0.5, 0, 0, 0, 0}, {0.75, 30, 5, 0, 0}};
    cluster.migrations = {{1, 2, true, 3, 300, 0, 9, 5}, {2, 2, false, 0, 0, 0, 5, 5}};
    cluster.homes = {{"h0", 10, 100, {latency_ms, 0, 0}, {}, 0.5},
                     {"h1", 10, 100, {8, 0, 0}, {}, 1}};
    cluster.devices = {
        {"a.gpu0", 0.5, 0, bytes, 0}, {"a.gpu1", 0.5, 0, bytes, 0}, {"b.gpu0", 0.1, 0, bytes, 0}};
    cluster.links = {{"a", "b", 3'000'000, 1'000'000, 1, 0.5}, {"b", "a", 1'000'000, 0, 1, 0.1}};
    cluster.layers_experts = {4, 4};
    cluster.models_layers = {1, 1};
    cluster.servers_layers = {{4, 1}, {0, 3}};
    return row;
}

}  // namespace

TEST_CASE("pages of every shape are well-formed and need nothing from outside") {
    std::vector<comparison> pages = {
        comparison{}, sample(1, {64}, {"gpu"}), sample(6, {16, 32, 64, 128}, {"gpu a", "gpu b"}),
        sample(30, {64}, {"gpu"}), sample(1, {16, 32, 64, 128, 200}, {"gpu"})};
    pages.push_back(sample(2, {16, 32}, {"gpu"}));
    for (comparison_row &row : pages.back().rows) {
        row.report.layers.clear();
        row.report.opt_misses = 0;
        row.experts_all = 0;
        row.report.tpot_ms.mean = 0;
    }
    pages.push_back(
        {"", "", "", {cluster_row("uniform", 16, 1'000'000), row_of("gpu", "lru", 64)}});
    for (const comparison &page : pages) {
        const std::string html = to_html(page, "moorage compare a.toml");
        const std::string markup = markup_of(html);
        CHECK(find_flaw(markup) == "");
        for (const char *outside : {"http:", "https:", "src=", "href=", "@import", "url("})
            CHECK_FALSE(contains(markup, outside));
        CHECK(contains(markup, "default-src 'none'"));
        // Four scripts begin and end: the data, the library, the drawing; none in the data.
        CHECK(count_of(html, "<script") == 3);
        CHECK(count_of(html, "</script") == 3);
    }
    for (const char *reach : {"fetch(", "XMLHttpRequest", "import(", "WebSocket", "innerHTML"})
        CHECK_FALSE(contains(page_script, reach));
}

TEST_CASE("the page carries its report, figure by figure") {
    comparison page = sample(3, {16, 32, 64}, {"gpu a", "gpu b"});
    page.trace = "prose.safetensors";
    const std::string html = to_html(page, "moorage compare a.toml --html b.html");
    CHECK(contains(html, "<pre>moorage compare a.toml --html b.html</pre>"));
    const json data = carried_data(html);
    CHECK(data["kind"] == "comparison");
    CHECK(data["data"]["trace"] == "prose.safetensors");
    CHECK(data["data"]["results"] == to_json(page)["results"]);
    CHECK(data["figures"]["tpot_ms.p99"]["unit"] == "ms");
    // The page itself has the words and the table.
    CHECK(contains(markup_of(html), "policy0"));
}

TEST_CASE("hostile texts stay texts") {
    const std::string hostile = "</script><script>alert(\"x\")</script> & 'y' \x01 \xff <!--";
    comparison page = sample(2, {16, 32}, {hostile});
    page.title = page.trace = page.shape = hostile;
    page.rows.push_back(cluster_row(hostile, 3, 1'000'000));
    page.rows.back().report.cluster->devices[0].name = hostile;
    for (comparison_row &row : page.rows) {
        row.report.config["cache"]["plugin"] = hostile;
        row.report.warnings = {hostile};
        row.report.faults = {{hostile, 1}};
        row.report.executor = hostile;
    }
    const std::string html = to_html(page, hostile);
    CHECK(find_flaw(markup_of(html)) == "");
    CHECK(count_of(html, "<script") == 3);
    CHECK_FALSE(contains(html, "\x01"));
    CHECK_FALSE(contains(html, "\xff"));
    CHECK(carried_data(html)["data"]["results"][0]["warnings"][0].get<std::string>().starts_with(
        "</script><script>alert(\"x\")"));
}

TEST_CASE("every figure that the script names has a definition") {
    const std::string script = page_script;
    const std::regex name("'([a-z_]+(\\.[a-z0-9_*]+)+)'");
    size_t named = 0;
    for (std::sregex_iterator match(script.begin(), script.end(), name), end; match != end;
         ++match) {
        const std::string path = (*match)[1];
        CAPTURE(path);
        CHECK(find_figure(path) != nullptr);
        ++named;
    }
    CHECK(named >= 20);
    for (const auto &named : all_figures()) {
        CAPTURE(named.first);
        CHECK_FALSE(named.second->label.empty());
        CHECK_FALSE(named.second->meaning.empty());
        CHECK_FALSE(named.second->meaning.ends_with("."));
    }
}

namespace {

std::string output_of(const std::string &line) {
    std::string output;
    if (std::FILE *pipe = popen(line.c_str(), "r")) {
        char part[4096];
        for (size_t count; (count = std::fread(part, 1, sizeof(part), pipe)) > 0;)
            output.append(part, count);
        pclose(pipe);
    }
    return output;
}

std::string browser() {
    for (const char *name : {"chromium", "chromium-browser", "google-chrome"})
        if (output_of(std::string("command -v ") + name) != "") return name;
    return "";
}

// Asks the drawn page whether it is wider than the window, and for its errors. A chart that takes
// its new size a frame later reports an error, which does not count.
constexpr const char *probe =
    "<script>addEventListener('error',e=>e.message.startsWith('ResizeObserver loop')||"
    "document.body.setAttribute('data-error',e.message));"
    "addEventListener('load',()=>setTimeout(()=>{const d=document.documentElement;"
    "const cut=[...document.querySelectorAll('figure,h2,li,canvas,.legend,.bars,td,th')].filter(e=>"
    "e.getBoundingClientRect().right>d.clientWidth+1).length;"
    "document.body.setAttribute('data-width',d.clientWidth);"
    "document.body.setAttribute('data-wide',d.scrollWidth-d.clientWidth);"
    "document.body.setAttribute('data-cut',cut);shown()},400))</script>";

// The DOM of the drawn page with `script` behind `mark`, which calls shown() in the end. The page
// is drawn within another one, because Chromium has no window narrower than 500 pixels.
std::string drawn_dom(const std::string &html, size_t width, const std::string &script = probe,
                      const std::string &mark = "<body>") {
    const toy::folder folder;
    const size_t insert_position = html.find(mark) + mark.size();
    std::ofstream(folder / "page.html")
        << html.substr(0, insert_position)
        << "<script>const shown=()=>parent.postMessage(document.documentElement.innerHTML,'*')"
           "</script>"
        << script << html.substr(insert_position);
    std::ofstream(folder / "window.html")
        << "<!doctype html><body style=\"margin:0\"><script>addEventListener('message',"
           "e=>document.documentElement.innerHTML=e.data)</script><iframe src=\"page.html\" "
           "style=\"border:0;height:900px;width:"
        << width << "px\"></iframe>";
    return output_of(browser() + " --headless=new --no-sandbox --disable-gpu --hide-scrollbars" +
                     " --user-data-dir=" + (folder / "profile").string() +
                     " --virtual-time-budget=3000 --window-size=1600,900 --dump-dom file://" +
                     (folder / "window.html").string() + " 2>/dev/null");
}

}  // namespace

TEST_CASE("a browser draws everything, and nothing is cut at any width") {
    if (browser().empty())
        return moorage::test::skip("no Chromium: pages were not drawn (apt-get install chromium)");
    comparison machines = sample(20, {16, 32, 64, 128}, {"gpu a", "gpu b"});
    comparison alone = sample(3, {64}, {"gpu"});
    alone.rows.push_back(cluster_row("uniform", 16, 1'000'000'000));
    alone.rows.push_back(cluster_row("prism", 4, 1'000'000'000));
    for (const size_t width : {360, 800, 1600}) {
        for (const comparison *page : {&machines, &alone}) {
            const std::string dom = drawn_dom(to_html(*page, "moorage compare a.toml"), width);
            CAPTURE(width);
            CHECK(contains(dom, format("data-width=\"{}\"", width)));
            CHECK(contains(dom, "data-wide=\"0\""));
            CHECK(contains(dom, "data-cut=\"0\""));
            CAPTURE(dom.substr(dom.find("<body"), 300));
            CHECK_FALSE(contains(dom, "data-error=\""));
            // Two of speed, misses, distances, and the one to choose; over time twice.
            CHECK(count_of(dom, "<canvas") >= (page == &machines ? 5u : 2u));
            CHECK(count_of(dom, "<h2>Where the time goes</h2>") == 1);
            if (page == &alone) CHECK(contains(dom, "a to b"));
        }
    }
}

namespace {

// Counts faults of the drawing: legend entries that look alike, bars whose length is not their
// share, maps whose columns have no names.
constexpr const char *looks_probe = R"(<script>addEventListener('load', () => setTimeout(() => {
  const all = (what, on = document) => [...on.querySelectorAll(what)];
  const twins = all('.legend').map(legend => {
    const looks = all('.swatch', legend).map(e => { const s = getComputedStyle(e);
      return s.borderTopColor + s.borderTopStyle + s.width; });
    return looks.length - new Set(looks).size; }).reduce((a, b) => a + b, 0);
  let shares = 0, wrong = 0;
  for (const bars of all('.bars')) {
    const end = bars.querySelector('.ruler') && bars.querySelector('.ruler').lastChild.textContent;
    for (const track of all('.track', bars)) {
      const value = parseFloat(track.nextSibling.textContent);
      if (!/ %/.test(track.nextSibling.textContent)) continue;
      ++shares;
      const width = parseFloat(track.firstChild.style.width);
      wrong += end !== '100.0 %' || Math.abs(width - value) > .1;
    }
  }
  const rulers = all('.bars').filter(e => !e.querySelector('.ruler')).length;
  const maps = all('table.heat'), bare = maps.filter(e => all('tfoot td', e).length < 2).length;
  const found = {twins, shares, wrong, rulers, maps: maps.length, bare};
  for (const [key, value] of Object.entries(found))
    document.body.setAttribute('data-' + key, value);
  shown(); }, 400))</script>)";

}  // namespace

TEST_CASE("a browser draws bars to scale, maps with axes and legends that tell entries apart") {
    if (browser().empty())
        return moorage::test::skip("no Chromium: pages were not drawn (apt-get install chromium)");
    const comparison lines = sample(7, {16, 32, 64}, {"gpu"}), bars = sample(5, {64}, {"gpu"});
    for (const comparison *page : {&lines, &bars}) {
        const std::string dom =
            drawn_dom(to_html(*page, "moorage compare a.toml"), 800, looks_probe);
        CAPTURE(dom.substr(dom.find("<body"), 300));
        CHECK(contains(dom, "data-twins=\"0\""));
        CHECK(contains(dom, "data-wrong=\"0\""));
        CHECK(contains(dom, "data-rulers=\"0\""));
        CHECK_FALSE(contains(dom, "data-maps=\"0\""));
        CHECK(contains(dom, "data-bare=\"0\""));
    }
}

namespace {

// A node's status among `servers` of a model with `layers`, `passed` seconds later.
json status_of(uint32_t servers, uint32_t layers, uint32_t passed) {
    node_snapshot snapshot;
    snapshot.name = "server 1 of the hall";
    snapshot.model = "demo";
    snapshot.software = "moorage test";
    snapshot.incarnation = 7;
    snapshot.since_ns = 1'000'000'000;
    snapshot.taken_ns = 3'599'900'000'000;
    snapshot.layers = layers;
    snapshot.experts = 16;
    snapshot.pages = layers * snapshot.experts;
    snapshot.hidden = 4096;
    snapshot.home = true;
    snapshot.called.calls = 4'000'000 + 100ull * passed;
    snapshot.called.activations = 4'000'000, snapshot.called.elsewhere = 1'000'000;
    snapshot.served.calls = 3'000'000 + 10ull * passed;
    snapshot.asked = desk_figures{.taken = 30, .ended = 20 + passed, .refused = 2};
    snapshot.connections.refused[static_cast<size_t>(refusal_reason::checksum)] = 3;
    const char *const stands[] = {"ready", "paused", "dead", "away"};
    for (uint32_t server = 0; server < servers; ++server) {
        peer_status peer;
        peer.name = format("server {} of the hall", server + 1);
        peer.stands = server == 0 ? "self" : stands[server % 4];
        if (server % 4 == 3) peer.trouble = "127.0.0.1:7305: connection refused; start its node";
        peer.calls = 1000ull * server + 40ull * passed;
        peer.expected_us = 120, peer.deadline_us = 25'000, peer.beat_us = 80;
        peer.calls_us = server % 2 == 0;
        peer.called.rows = 400'000'000, peer.called.pairs = 900'000'000;
        snapshot.peers.push_back(peer);
        snapshot.plan_layers.emplace_back(layers, server % 17);
    }
    for (uint32_t layer = 0; layer < layers; ++layer)
        snapshot.layer_rows.push_back(1000 + passed * layer);
    return to_json(snapshot, 3'600'000'000'000);
}

// Answers the page in the node's place. After two questions it notes faults of the page: parts that
// stick out of the window or of their own box, rows that overlap, names in the map.
constexpr const char *asked_probe = R"(
let asked = 0;
fetch = async () => ({ json: async () => told[Math.min(asked++, 1)] });
addEventListener('error', e => document.body.setAttribute('data-error', e.message));
addEventListener('load', () => setTimeout(() => {
  const d = document.documentElement, of = e => e.getBoundingClientRect();
  const all = (what, on = document) => [...on.querySelectorAll(what)];
  const meet = (a, b) => a !== b && of(a).left < of(b).right - 1 && of(b).left < of(a).right - 1 &&
    of(a).top < of(b).bottom - 1 && of(b).top < of(a).bottom - 1;
  const pairs = (some, others) => some.flatMap(a => others.filter(b => meet(a, b))).length;
  const parts = [...document.body.children].filter(e => of(e).height);
  const svg = all('#map svg')[0], boxes = all('rect', svg).filter(e => of(e).height > 2);
  const names = all('text', svg).filter(e => !e.hasAttribute('text-anchor'));
  const counts = all('text', svg).filter(e => e.hasAttribute('text-anchor'));
  const outside = (e, box) => of(e).left < of(box).left - 1 || of(e).right > of(box).right + 1 ||
    of(e).top < of(box).top - 1 || of(e).bottom > of(box).bottom + 1;
  const found = {
    width: d.clientWidth, wide: d.scrollWidth - d.clientWidth,
    cut: parts.filter(e => of(e).left < 0 || of(e).right > d.clientWidth + 1).length +
      all('th,td,h1,h2,p').filter(e => e.scrollWidth > e.clientWidth + 1).length,
    reach: all('.wide').filter(e => of(e.firstChild).width > e.scrollWidth + 1).length,
    outside: all('text,rect', svg).filter(e => outside(e, svg)).length,
    overlap: pairs(parts, parts) + pairs(names, [...names, ...boxes]) + pairs(counts, counts) +
      pairs(all('th,td'), all('th,td')),
    rects: all('rect', svg).length, links: at('links').tBodies[0].rows.length,
    work: at('work').tBodies[0].rows.length, stale: at('stale').textContent,
    rate: at('links').tBodies[0].rows[0].cells[3].textContent, title: document.title };
  for (const key in found) document.body.setAttribute('data-' + key, found[key]);
  shown();
}, 1500)))";

}  // namespace

TEST_CASE("the page of a node: a browser draws every server, and nothing is cut or overlaps") {
    if (browser().empty())
        return moorage::test::skip("no Chromium: pages were not drawn (apt-get install chromium)");
    struct shape {
        uint32_t servers, layers;
        size_t width;
    };
    for (const auto &[servers, layers, width] :
         {shape{3, 12, 360}, {12, 61, 360}, {12, 61, 800}, {12, 61, 1600}}) {
        const json statuses = {status_of(servers, layers, 0), status_of(servers, layers, 1)};
        const std::string script =
            format("<script>const told = {};{}</script>", statuses.dump(), asked_probe);
        const std::string dom = drawn_dom(std::string(node_page), width, script, "</style>");
        const size_t notes = dom.find("<body");
        CAPTURE(dom.substr(notes, dom.find('>', notes) - notes));
        CHECK_FALSE(contains(dom, "data-error=\""));
        CHECK(contains(dom, "data-stale=\"\""));
        CHECK(contains(dom, format("data-width=\"{}\"", width)));
        for (const std::string attribute : {"wide", "cut", "reach", "outside", "overlap"}) {
            CAPTURE(attribute);
            CHECK(contains(dom, format("data-{}=\"0\"", attribute)));
        }
        CHECK(contains(dom, format("data-rects=\"{}\"", (servers + 1) * layers)));
        CHECK(contains(dom, format("data-links=\"{}\"", servers - 1)));
        CHECK(contains(dom, "data-work=\"8\""));
        CHECK(contains(dom, "data-title=\"server 1 of the hall - moorage node\""));
        CHECK_FALSE(contains(dom, "data-rate=\"0.0\""));
        CHECK(contains(dom, "connection refused; start its node") == (servers > 3));
    }
}

}  // namespace page_test
