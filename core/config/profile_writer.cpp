// profile_writer.cpp - writes keys and sources in the order in which profile_file.cpp reads them.
#include "core/config/profile_writer.h"

#include "core/base/text.h"
#include "core/config/profile_keys.h"
#include "core/config/toml_text.h"

namespace moorage::core {

namespace {

// One table, followed by its sources.
class part_writer {
public:
    part_writer(std::string kind, const profile_sources &sources)
        : kind_(std::move(kind)), sources_(sources), keys_("[" + kind_ + "]\n") {}

    // Omits terms that have their default value.
    template <class Of>
    void all(const profile_rows<Of> &rows, const Of &of) {
        for (const key_row<Of> &row : rows.labels) label(row.name, row.value(row.takes, of));
        for (const key_row<Of> &row : rows.figures) figure(std::string(row.name), text_of(row, of));
        for (const key_row<Of> &row : rows.terms)
            if (text_of(row, of) != text_of(row, Of{}))
                figure(std::string(row.name), text_of(row, of));
    }
    void label(std::string_view key, const std::string &value) {
        keys_ += format("{} = {}\n", key, value);
    }
    void figure(const std::string &key, const std::string &value) {
        keys_ += key + " = " + value + "\n";
        const std::string *from = &sources_.otherwise;
        if (const auto part = sources_.of.find(kind_); part != sources_.of.end())
            if (const auto found = part->second.find(key); found != part->second.end())
                from = &found->second;
        origins_ += key + " = " + quoted(*from) + "\n";
    }
    std::string text() const { return keys_ + "\n[" + kind_ + ".sources]\n" + origins_; }

private:
    // A number with a point or an exponent, so that it is no integer. It gets its unit if it would
    // not be believed without.
    template <class Of>
    static std::string text_of(const key_row<Of> &row, const Of &of) {
        const std::string text = row.value(row.takes, of);
        const bool number =
            row.takes.kind == value_kind::real || row.takes.kind == value_kind::whole;
        if (number && !unusual_text(row.takes, std::stod(text)).empty())
            return quoted(quantity_text(std::stod(text), row.takes.unit));
        return row.takes.kind == value_kind::real ? format("{:.4e}", std::stod(text)) : text;
    }

    std::string kind_;
    const profile_sources &sources_;
    std::string keys_, origins_;
};

template <class Of>
std::string text_of(const char *kind, const profile_rows<Of> &rows, const Of &of,
                    const profile_sources &sources) {
    part_writer out(kind, sources);
    out.all(rows, of);
    return out.text();
}

// This engine, which uses the figures of the other tables.
std::string engine_text(const hardware_profile &profile, const profile_sources &sources) {
    part_writer out("engine", sources);
    out.label("name", quoted("moorage on " + profile.device.name));
    out.figure("costs", quoted("device"));
    out.figure("overlap", quoted("layer"));
    if (const uint64_t ns = profile.node.cpu_handover_ns; ns != 0)
        out.figure("cpu_layer_ns", format("{}", ns));
    return out.text();
}

}  // namespace

std::string to_toml(const hardware_profile &profile, const profile_sources &sources,
                    std::span<const std::string> notes) {
    std::string text = "# " + profile.device.name + ": what it costs, as measured on it.\n" +
                       "kind = \"machine\"\n\n" +
                       text_of("device", device_profile_rows, profile.device, sources) + "\n" +
                       text_of("link", link_profile_rows, profile.link, sources) + "\n" +
                       text_of("node", node_profile_rows, profile.node, sources) + "\n" +
                       engine_text(profile, sources);
    if (!notes.empty()) text += "\n";
    for (const std::string &note : notes) text += note.empty() ? "#\n" : "# " + note + "\n";
    return text;
}

}  // namespace moorage::core
