// symbols.cpp - a reader of the ELF64 .dynsym section; every offset is checked against the file.
#include "tools/moorage/check/symbols.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include <elf.h>

#include "core/base/text.h"

namespace moorage::check {

namespace {

using core::error;
using core::format;

// The bytes of a file with checked reads.
struct image {
    std::string bytes;

    template <class Record>
    std::optional<Record> at(uint64_t offset) const {
        if (offset > bytes.size() || bytes.size() - offset < sizeof(Record)) return {};
        Record record;
        std::memcpy(&record, bytes.data() + offset, sizeof(record));
        return record;
    }
    std::string text(uint64_t offset) const {
        if (offset >= bytes.size()) return "";
        const size_t end = bytes.find('\0', offset);
        return end == std::string::npos ? "" : bytes.substr(offset, end - offset);
    }
};

}  // namespace

core::result<std::vector<std::string>> exported_symbols(const std::filesystem::path &file) {
    std::ifstream in(file, std::ios::binary);
    const image of{std::string(std::istreambuf_iterator<char>(in), {})};
    const auto header = of.at<Elf64_Ehdr>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64)
        return error{"no 64-bit ELF file"};
    if (header->e_shentsize != sizeof(Elf64_Shdr)) return error{"no section headers"};
    std::vector<Elf64_Shdr> sections;
    for (uint32_t i = 0; i < header->e_shnum; ++i) {
        const auto section = of.at<Elf64_Shdr>(header->e_shoff + uint64_t{i} * sizeof(Elf64_Shdr));
        if (!section) return error{"the section headers reach beyond the end of the file"};
        sections.push_back(*section);
    }
    std::vector<std::string> names;
    for (const Elf64_Shdr &section : sections) {
        if (section.sh_type != SHT_DYNSYM) continue;
        if (section.sh_link >= sections.size()) return error{".dynsym has no string table"};
        const uint64_t texts = sections[section.sh_link].sh_offset,
                       count = section.sh_size / sizeof(Elf64_Sym);
        for (uint64_t i = 0; i < count; ++i) {
            const auto symbol = of.at<Elf64_Sym>(section.sh_offset + i * sizeof(Elf64_Sym));
            if (!symbol) return error{".dynsym reaches beyond the end of the file"};
            const auto binding = ELF64_ST_BIND(symbol->st_info);
            const auto visibility = ELF64_ST_VISIBILITY(symbol->st_other);
            const bool visible = visibility == STV_DEFAULT || visibility == STV_PROTECTED;
            if (symbol->st_shndx != SHN_UNDEF && symbol->st_shndx != SHN_ABS &&
                binding != STB_LOCAL && visible)
                names.push_back(of.text(texts + symbol->st_name));
        }
    }
    return names;
}

}  // namespace moorage::check
