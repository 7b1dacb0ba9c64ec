// page.cpp - the frame of a page: its text, its JSON, its scripts.
#include "tools/comparison/page.h"

#include "core/base/json.h"
#include "core/report/figure_table.h"
#include "core/report/figures.h"
#include "tools/comparison/page_files.h"

namespace moorage::core {

namespace {

// Nothing from outside, whatever stands in the data.
constexpr const char *rules =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'\"/>\n";

// JSON that can stand in a <script>: "<" is in texts only, where it may be written as an escape.
std::string script_json(const json &data) {
    std::string escaped;
    for (const char c : json_line(data)) {
        if (c == '<')
            escaped += "\\u003c";
        else
            escaped += c;
    }
    return escaped;
}

std::string chapter(const std::string &heading, const std::string &body) {
    if (body.empty()) return "";
    return "<section>\n" + element("h2", heading) + "\n" + body + "</section>\n";
}

// Numbers are not parted from their units.
std::string unparted(std::string_view text) {
    std::string joined;
    for (size_t i = 0; i < text.size(); ++i)
        if (before_unit(text, i))
            joined += "\u00a0";
        else
            joined += text[i];
    return joined;
}

std::string sentences(const std::vector<std::string> &reading) {
    std::string html;
    for (const std::string &sentence : reading)
        html += (sentence.starts_with("warning") ? "<li class=\"warning\">" : "<li>") +
                escape_markup(unparted(sentence)) + "</li>\n";
    return html.empty() ? "" : "<ul>\n" + html + "</ul>\n";
}

std::string failed_table(std::span<const failed_row> rows) {
    std::string html;
    for (const failed_row &row : rows)
        html += "<tr>" + element("th", row.label) + element("td", row.reason) + "</tr>\n";
    return html.empty() ? ""
                        : "<div class=\"wide\"><table class=\"words\">\n<tbody>\n" + html +
                              "</tbody>\n</table></div>\n";
}

}  // namespace

std::string escape_markup(std::string_view text) {
    std::string escaped;
    for (const char c : repaired_utf8(text)) {
        if (c == '&')
            escaped += "&amp;";
        else if (c == '<')
            escaped += "&lt;";
        else if (c == '>')
            escaped += "&gt;";
        else if (c == '"')
            escaped += "&quot;";
        else if (c == '\'')
            escaped += "&#39;";
        else if (c == '\n' || c == '\t' || static_cast<unsigned char>(c) >= 0x20)
            escaped += c;
        else
            escaped += ' ';
    }
    return escaped;
}

std::string element(const std::string &name, const std::string &text) {
    return "<" + name + ">" + escape_markup(text) + "</" + name + ">";
}

std::string to_html(const page &page) {
    const json carried = {{"kind", page.kind}, {"figures", figures_json()}, {"data", *page.data}};
    std::string html = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n";
    html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n";
    html += rules + element("title", page.title) + "\n<style>\n" + uplot_style + "\n" + page_style +
            "</style></head>\n<body><main>\n" + element("h1", page.title) + "\n";
    if (!page.command.empty()) html += element("pre", page.command) + "\n";
    html +=
        chapter("In short", sentences(page.reading)) + chapter("Failed", failed_table(page.failed));
    html +=
        "<div id=\"drawn\"></div>\n<noscript><p class=\"note\">The drawings need a browser "
        "with scripts; the page asks for nothing from outside.</p></noscript>\n";
    if (!page.text.empty())
        html += "<details><summary>As a terminal shows it</summary>\n<pre>" +
                escape_markup(page.text) + "</pre></details>\n";
    html += "<script type=\"application/json\" id=\"carried\">" + script_json(carried) +
            "</script>\n<script>/*\n" + uplot_licence + "*/\n" + uplot_script +
            "</script>\n<script>" + page_script;
    return html + "</script>\n</main></body></html>\n";
}

}  // namespace moorage::core
