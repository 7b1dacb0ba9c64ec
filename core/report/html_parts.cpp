// html_parts.cpp - chapters, figures and facts of a page.
#include "core/report/html_parts.h"

#include "core/report/html_style.h"
#include "core/report/svg.h"

namespace moorage::core {

std::string page_begin(const std::string &title) {
    return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n" +
           element("title", title) + "\n<style>\n" + html_style() +
           "</style></head>\n<body><main>\n" + element("h1", title) + "\n";
}

std::string element(const std::string &name, const std::string &text) {
    return "<" + name + ">" + escape_markup(text) + "</" + name + ">";
}

std::string unbroken(std::string text) {
    for (size_t at = 0; (at = text.find(" %", at)) != std::string::npos;)
        text.replace(at, 1, "\u00a0");
    return text;
}

std::string joined(const std::vector<std::string> &parts) {
    std::string text;
    for (const std::string &part : parts) text += (text.empty() ? "" : ", ") + part;
    return text;
}

std::string fact_line(const std::string &name, const std::string &value) {
    if (value.empty()) return "";
    return "<div>" + element("dt", name) + element("dd", unbroken(value)) + "</div>";
}

std::string chapter(const std::string &heading, const std::string &note, const std::string &body) {
    if (body.empty()) return "";
    return "<section>\n" + element("h2", heading) + "\n" +
           (note.empty() ? "" : "<p class=\"note\">" + escape_markup(note) + "</p>\n") + body +
           "</section>\n";
}

static std::string figure_of(const chart_figure &figure, const std::string &css) {
    if (figure.svg.empty()) return "";
    return "<figure" + css + ">" + element("figcaption", figure.heading) + "\n" + figure.svg +
           "</figure>\n";
}

std::string grid_of(const std::vector<chart_figure> &figures) {
    std::string html;
    for (const chart_figure &figure : figures) html += figure_of(figure, "");
    return html.empty() ? "" : "<div class=\"grid\">\n" + html + "</div>\n";
}

std::string maps_of(const std::vector<chart_figure> &figures) {
    std::string html;
    for (const chart_figure &figure : figures) html += figure_of(figure, " class=\"map\"");
    return html;
}

}  // namespace moorage::core
