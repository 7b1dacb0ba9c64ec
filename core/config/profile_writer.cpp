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
    void write_all(const profile_rows<Of> &rows, const Of &values) {
        for (const key_row<Of> &row : rows.labels)
            write_label(row.name, row.value(row.accepted, values));
        for (const key_row<Of> &row : rows.figures)
            write_figure(std::string(row.name), text_of(row, values));
        for (const key_row<Of> &row : rows.terms)
            if (text_of(row, values) != text_of(row, Of{}))
                write_figure(std::string(row.name), text_of(row, values));
    }
    void write_label(std::string_view key, const std::string &value) {
        keys_ += format("{} = {}\n", key, value);
    }
    void write_figure(const std::string &key, const std::string &value) {
        keys_ += key + " = " + value + "\n";
        const std::string *source = &sources_.default_source;
        if (const auto part = sources_.by_part.find(kind_); part != sources_.by_part.end())
            if (const auto found = part->second.find(key); found != part->second.end())
                source = &found->second;
        origins_ += key + " = " + quoted(*source) + "\n";
    }
    std::string text() const { return keys_ + "\n[" + kind_ + ".sources]\n" + origins_; }

private:
    // A number with a point or an exponent, so that it is no integer. It gets its unit if it would
    // not be believed without.
    template <class Of>
    static std::string text_of(const key_row<Of> &row, const Of &values) {
        const std::string text = row.value(row.accepted, values);
        const bool number =
            row.accepted.kind == value_kind::real || row.accepted.kind == value_kind::whole;
        if (number && !unusual_text(row.accepted, std::stod(text)).empty())
            return quoted(quantity_text(std::stod(text), row.accepted.unit));
        return row.accepted.kind == value_kind::real ? format("{:.4e}", std::stod(text)) : text;
    }

    std::string kind_;
    const profile_sources &sources_;
    std::string keys_, origins_;
};

template <class Of>
std::string text_of(const char *kind, const profile_rows<Of> &rows, const Of &values,
                    const profile_sources &sources) {
    part_writer writer(kind, sources);
    writer.write_all(rows, values);
    return writer.text();
}

// This engine, which uses the figures of the other tables.
std::string engine_text(const hardware_profile &profile, const profile_sources &sources) {
    part_writer writer("engine", sources);
    writer.write_label("name", quoted("moorage on " + profile.device.name));
    writer.write_figure("costs", quoted("device"));
    writer.write_figure("overlap", quoted("layer"));
    if (const uint64_t ns = profile.node.cpu_handover_ns; ns != 0)
        writer.write_figure("cpu_layer_ns", format("{}", ns));
    return writer.text();
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
