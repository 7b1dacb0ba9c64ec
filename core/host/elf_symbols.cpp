// elf_symbols.cpp - reads the dynamic segment of ELF64 files without trusting anything in them.
//
// The file is read, not mapped. If it shrinks meanwhile, it is truncated and causes no bus error.
#include "core/host/elf_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

#include "core/base/text.h"

namespace moorage::core {

namespace {

// Limit of one table. The tables of real policy libraries have a thousandth of it.
constexpr uint64_t table_bytes_max = 64u << 20;
constexpr size_t name_bytes_max = 256;

// The bytes of a file with checked reads.
class image {
public:
    // Does not wait for a writer if the file is a pipe.
    explicit image(const std::filesystem::path &file)
        : file_(open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
        struct stat found {};
        if (file_ >= 0 && fstat(file_, &found) == 0 && S_ISREG(found.st_mode))
            bytes_ = static_cast<uint64_t>(found.st_size), regular_ = true;
        if (!regular_) return;
        // Most libraries are small. One read instead of one for each table.
        head_bytes_ = std::min(bytes_, head_bytes_max);
        head_ = std::make_unique_for_overwrite<char[]>(head_bytes_);
        if (!read_file(0, head_.get(), head_bytes_)) head_bytes_ = 0;
    }
    ~image() {
        if (file_ >= 0) close(file_);
    }
    image(const image &) = delete;

    bool opened() const { return file_ >= 0; }
    bool regular() const { return regular_; }
    uint64_t bytes() const { return bytes_; }

    bool read(uint64_t offset, void *target, uint64_t bytes) const {
        if (offset > bytes_ || bytes_ - offset < bytes) return false;
        if (offset + bytes > head_bytes_) return read_file(offset, target, bytes);
        if (bytes > 0) std::memcpy(target, head_.get() + offset, bytes);
        return true;
    }
    template <class Record>
    std::optional<Record> record_at(uint64_t offset) const {
        Record record;
        if (!read(offset, &record, sizeof(record))) return {};
        return record;
    }
    template <class Record>
    std::optional<std::vector<Record>> table(uint64_t offset, uint64_t count) const {
        if (count > std::min(table_bytes_max, bytes_) / sizeof(Record)) return {};
        std::vector<Record> records(count);
        if (!read(offset, records.data(), count * sizeof(Record))) return {};
        return records;
    }

private:
    static constexpr uint64_t head_bytes_max = 64 << 10;

    bool read_file(uint64_t offset, void *target, uint64_t bytes) const {
        for (uint64_t done = 0; done < bytes;) {
            const ssize_t got = pread(file_, static_cast<char *>(target) + done, bytes - done,
                                      static_cast<off_t>(offset + done));
            if (got <= 0) return false;
            done += static_cast<uint64_t>(got);
        }
        return true;
    }

    int file_;
    bool regular_ = false;
    uint64_t bytes_ = 0;
    std::unique_ptr<char[]> head_;  // the first bytes of the file
    uint64_t head_bytes_ = 0;
};

// File offsets of the tables, according to the dynamic segment; 0: none.
struct tables {
    uint64_t symbols = 0, texts = 0, text_bytes = 0, hash = 0, gnu_hash = 0;
    std::vector<uint64_t> needed;  // offsets into the names
};

result<std::vector<Elf64_Phdr>> segments_of(const image &file) {
    char mark[SELFMAG];
    if (!file.read(0, mark, sizeof(mark)) || std::memcmp(mark, ELFMAG, SELFMAG) != 0)
        return error{
            "is not a shared library (no ELF header); rebuild the policy as a shared "
            "object"};
    const auto header = file.record_at<Elf64_Ehdr>(0);
    if (!header || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_phentsize != sizeof(Elf64_Phdr))
        return error{"is not a 64-bit shared library; rebuild the policy for this machine"};
    uint64_t needed = header->e_phoff + uint64_t{header->e_phnum} * sizeof(Elf64_Phdr);
    auto segments = file.table<Elf64_Phdr>(header->e_phoff, header->e_phnum);
    // The loader does not check the length of the file, so a truncated library would end the
    // process with a bus error.
    if (segments)
        for (const Elf64_Phdr &segment : *segments)
            if (segment.p_type == PT_LOAD || segment.p_type == PT_DYNAMIC)
                needed = std::max(needed, segment.p_offset > UINT64_MAX - segment.p_filesz
                                              ? UINT64_MAX
                                              : segment.p_offset + segment.p_filesz);
    if (!segments || needed > file.bytes())
        return error{
            format("is cut off: it has {} bytes, its segments need {}; copy or build it again",
                   file.bytes(), needed)};
    return std::move(*segments);
}

// The file offset of an address in the loaded library.
uint64_t offset_of(uint64_t address, const std::vector<Elf64_Phdr> &segments) {
    for (const Elf64_Phdr &segment : segments)
        if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
            address - segment.p_vaddr < segment.p_filesz)
            return segment.p_offset + (address - segment.p_vaddr);
    return 0;
}

std::optional<tables> tables_of(const image &file, const std::vector<Elf64_Phdr> &segments) {
    const auto segment =
        std::find_if(segments.begin(), segments.end(),
                     [](const Elf64_Phdr &header) { return header.p_type == PT_DYNAMIC; });
    if (segment == segments.end()) return {};
    const auto entries =
        file.table<Elf64_Dyn>(segment->p_offset, segment->p_filesz / sizeof(Elf64_Dyn));
    if (!entries) return {};
    tables found;
    for (const Elf64_Dyn &entry : *entries) {
        if (entry.d_tag == DT_NULL) break;
        if (entry.d_tag == DT_NEEDED) found.needed.push_back(entry.d_un.d_val);
        if (entry.d_tag == DT_STRSZ) found.text_bytes = entry.d_un.d_val;
        if (entry.d_tag == DT_SYMTAB) found.symbols = offset_of(entry.d_un.d_ptr, segments);
        if (entry.d_tag == DT_STRTAB) found.texts = offset_of(entry.d_un.d_ptr, segments);
        if (entry.d_tag == DT_HASH) found.hash = offset_of(entry.d_un.d_ptr, segments);
        if (entry.d_tag == DT_GNU_HASH) found.gnu_hash = offset_of(entry.d_un.d_ptr, segments);
    }
    if (!found.symbols || !found.texts) return {};
    return found;
}

// The number of symbols, which only the hash tables give.
std::optional<uint64_t> symbols_in(const image &file, const tables &tables) {
    if (tables.hash) {
        const auto counts =
            file.table<uint32_t>(tables.hash, 2);  // buckets, chains: one per symbol
        if (counts) return (*counts)[1];
        return {};
    }
    if (!tables.gnu_hash) return {};
    const auto head = file.table<uint32_t>(tables.gnu_hash, 4);
    if (!head) return {};
    const uint64_t buckets_at = tables.gnu_hash + 16 + uint64_t{(*head)[2]} * 8;
    const auto buckets = file.table<uint32_t>(buckets_at, (*head)[0]);
    if (!buckets || buckets->empty()) return {};
    const uint64_t first = (*head)[1], chains_at = buckets_at + buckets->size() * 4;
    uint64_t last = *std::max_element(buckets->begin(), buckets->end());
    if (last < first) return first;
    for (;; ++last) {  // ends, because each step reads further into the file
        const auto chain = file.record_at<uint32_t>(chains_at + (last - first) * 4);
        if (!chain) return {};
        if (*chain & 1) return last + 1;
    }
}

}  // namespace

result<elf_symbols> read_elf_symbols(const std::filesystem::path &path) {
    const image file(path);
    if (!file.opened()) return error{"cannot be read; check its permissions"};
    if (!file.regular()) return error{"is no regular file; name the library itself"};
    const auto segments = segments_of(file);
    if (!segments) return segments.failure();
    const error damaged{"has no sound table of symbols; build it again"};
    const auto tables = tables_of(file, *segments);
    if (!tables) return damaged;
    const auto count = symbols_in(file, *tables);
    if (!count) return damaged;
    const auto symbols = file.table<Elf64_Sym>(tables->symbols, *count);
    auto texts = file.table<char>(tables->texts, tables->text_bytes);
    if (!symbols || !texts || texts->empty() || texts->back() != '\0') return damaged;
    elf_symbols found;
    found.texts = std::make_unique<std::vector<char>>(std::move(*texts));
    for (const uint64_t offset : tables->needed) {
        if (offset >= found.texts->size()) return damaged;
        const char *text = found.texts->data() + offset;
        found.needed.emplace_back(text, strnlen(text, name_bytes_max));
    }
    for (const Elf64_Sym &symbol : *symbols) {
        if (symbol.st_name >= found.texts->size()) return damaged;
        const char *text = found.texts->data() + symbol.st_name;
        const std::string_view name(text, strnlen(text, name_bytes_max));
        const auto binding = ELF64_ST_BIND(symbol.st_info), type = ELF64_ST_TYPE(symbol.st_info);
        const auto visibility = ELF64_ST_VISIBILITY(symbol.st_other);
        if (name.empty() || binding == STB_LOCAL) continue;
        if (symbol.st_shndx == SHN_UNDEF) {
            found.imported.push_back(name);
        } else if (symbol.st_shndx != SHN_ABS &&
                   (visibility == STV_DEFAULT || visibility == STV_PROTECTED)) {
            found.exported.push_back(name);
            if (binding == STB_GNU_UNIQUE) found.shared.push_back(name);
            if (type == STT_FUNC || type == STT_GNU_IFUNC) found.functions.push_back(name);
        }
    }
    return found;
}

}  // namespace moorage::core
