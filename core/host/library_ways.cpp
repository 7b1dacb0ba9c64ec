// library_ways.cpp - lists of harmless names; finds the writable segments of a loaded library.
#include "core/host/library_ways.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <string_view>

namespace moorage::core {

namespace {

// Beginnings of the names of libraries that a policy may need and still keep to itself.
constexpr std::string_view plain_libraries[] = {
    "libc.so.",   "libm.so.",      "libgcc_s.so.", "libstdc++.so.",
    "libc++.so.", "libc++abi.so.", "ld-linux",     "libmvec.so.",
};
// Functions of the C library that affect only their arguments and the heap. Sorted.
constexpr std::string_view plain_functions[] = {
    "__assert_fail",
    "__errno_location",
    "__gmon_start__",
    "__memcpy_chk",
    "__memmove_chk",
    "__memset_chk",
    "__snprintf_chk",
    "__sprintf_chk",
    "__stack_chk_fail",
    "__strcat_chk",
    "__strcpy_chk",
    "__strncpy_chk",
    "__vsnprintf_chk",
    "abort",
    "aligned_alloc",
    "bcmp",
    "bsearch",
    "calloc",
    "free",
    "malloc",
    "memchr",
    "memcmp",
    "memcpy",
    "memmem",
    "memmove",
    "memset",
    "posix_memalign",
    "qsort",
    "realloc",
    "snprintf",
    "sprintf",
    "stpcpy",
    "strcat",
    "strchr",
    "strcmp",
    "strcpy",
    "strcspn",
    "strlen",
    "strncat",
    "strncmp",
    "strncpy",
    "strnlen",
    "strpbrk",
    "strrchr",
    "strspn",
    "strstr",
    "strtod",
    "strtol",
    "strtoll",
    "strtoul",
    "strtoull",
    "vsnprintf",
};
// Mathematical functions. Each also exists for float, with f at its end. Sorted.
constexpr std::string_view mathematics[] = {
    "acos",  "acosh",     "asin",   "asinh",  "atan",   "atan2",   "atanh",     "cbrt",
    "ceil",  "copysign",  "cos",    "cosh",   "erf",    "erfc",    "exp",       "exp2",
    "expm1", "fabs",      "fdim",   "floor",  "fma",    "fmax",    "fmin",      "fmod",
    "frexp", "hypot",     "ldexp",  "lgamma", "llrint", "llround", "log",       "log10",
    "log1p", "log2",      "logb",   "lrint",  "lround", "modf",    "nearbyint", "nextafter",
    "pow",   "remainder", "rint",   "round",  "scalbn", "sin",     "sinh",      "sqrt",
    "tan",   "tanh",      "tgamma", "trunc",
};
// Beginnings of names from the C++ library and the compiler: exceptions, strings, new and delete,
// type tables.
constexpr std::string_view plain_beginnings[] = {
    "_Unwind_",
    "_ZTI",
    "_ZTV",
    "_ZTS",
    "_Zn",
    "_Zd",
    "__cxa_",
    "__gxx_personality_",
    "_ITM_",
    "_ZSt18_Rb_tree",
    "_ZSt20__throw_",
    "_ZSt17__throw_",
    "_ZSt19__throw_",
    "_ZSt16__throw_",
    "_ZSt21__throw_",
    "_ZSt24__throw_",
    "_ZSt25__throw_",
    "_ZSt28_Rb_tree",
    "_ZSt29_Rb_tree",
    "_ZSt9terminatev",
    "_ZSt28__throw_",
    "_ZNSt8__detail",
    "_ZNKSt8__detail",
    "_ZNSt7__cxx1112basic_string",
    "_ZNKSt7__cxx1112basic_string",
    "_ZNSt9exception",
    "_ZNKSt9exception",
    "_ZNSt11logic_error",
    "_ZNSt13runtime_error",
    "_ZNSt16invalid_argument",
    "_ZNSt12out_of_range",
    "_ZNSt12length_error",
    "_ZNSt12domain_error",
    "_ZNSt11range_error",
    "_ZNSt14overflow_error",
    "_ZNSt9bad_alloc",
    "_ZSt11_Hash_bytes",
    "__udiv",
    "__umod",
    "__div",
    "__mod",
    "__mul",
    "__powi",
};
// These names begin like harmless ones. Thread-local variables are not in a library's own memory.
constexpr std::string_view exceptions[] = {"__cxa_thread_atexit", "__cxa_thread_atexit_impl"};

bool is_listed(std::span<const std::string_view> sorted, std::string_view name) {
    return std::binary_search(sorted.begin(), sorted.end(), name);
}
bool begins_with_one_of(std::string_view name, std::span<const std::string_view> beginnings) {
    return std::any_of(beginnings.begin(), beginnings.end(),
                       [&](std::string_view beginning) { return name.starts_with(beginning); });
}
bool is_plain(std::string_view name) {
    if (std::find(std::begin(exceptions), std::end(exceptions), name) != std::end(exceptions))
        return false;
    if (is_listed(plain_functions, name) || is_listed(mathematics, name)) return true;
    if (name.ends_with('f') && is_listed(mathematics, name.substr(0, name.size() - 1))) return true;
    return begins_with_one_of(name, plain_beginnings);
}
static_assert(std::is_sorted(std::begin(plain_functions), std::end(plain_functions)));
static_assert(std::is_sorted(std::begin(mathematics), std::end(mathematics)));

struct segment {
    uintptr_t begin, end;
};
// The library around an address, and the segments of all loaded libraries.
struct loaded_segments {
    uintptr_t code;
    std::vector<segment> writable;  // of the library that contains `code`
    std::vector<segment> segments;
    bool thread_variables = false;
};

int add_segments(dl_phdr_info *about, size_t, void *data) {
    auto &found = *static_cast<loaded_segments *>(data);
    std::vector<segment> writable;
    segment fixed{0, 0};  // written by the loader, then read-only
    bool is_library = false, thread_variables = false;
    for (const ElfW(Phdr) *part = about->dlpi_phdr, *end = part + about->dlpi_phnum; part != end;
         ++part) {
        const uintptr_t begin = about->dlpi_addr + part->p_vaddr;
        const segment bounds{begin, begin + part->p_memsz};
        if (part->p_type == PT_TLS && part->p_memsz != 0) thread_variables = true;
        if (part->p_type == PT_GNU_RELRO) fixed = bounds;
        if (part->p_type != PT_LOAD) continue;
        found.segments.push_back(bounds);
        is_library = is_library || (found.code >= bounds.begin && found.code < bounds.end);
        if (part->p_flags & PF_W) writable.push_back(bounds);
    }
    if (!is_library) return 0;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    for (segment bounds : writable) {
        if (fixed.end > bounds.begin && fixed.begin <= bounds.begin)
            bounds.begin = std::max(bounds.begin, fixed.end / page * page);
        if (bounds.begin < bounds.end) found.writable.push_back(bounds);
    }
    found.thread_variables = thread_variables;
    return 0;
}

// Is the word the address of memory outside all libraries, for example on the heap?
bool points_elsewhere(uintptr_t word, const loaded_segments &known) {
    constexpr uintptr_t lowest = 0x10000, highest = uintptr_t{1} << 47;
    if (word < lowest || word >= highest) return false;
    for (const segment &bounds : known.segments)
        if (word >= bounds.begin && word < bounds.end) return false;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    unsigned char present = 0;
    return mincore(reinterpret_cast<void *>(word / page * page), page, &present) == 0;
}

}  // namespace

bool is_self_contained(const elf_symbols &symbols) {
    return std::all_of(
               symbols.needed.begin(), symbols.needed.end(),
               [](std::string_view name) { return begins_with_one_of(name, plain_libraries); }) &&
           std::all_of(symbols.imported.begin(), symbols.imported.end(), is_plain);
}

library_memory::library_memory(const void *code) {
    loaded_segments found{reinterpret_cast<uintptr_t>(code), {}, {}};
    dl_iterate_phdr(add_segments, &found);
    comparable_ = !found.writable.empty() && !found.thread_variables;
    for (const segment &bounds : found.writable) {
        const auto *begin = reinterpret_cast<const unsigned char *>(bounds.begin);
        ranges_.push_back({begin, {begin, begin + (bounds.end - bounds.begin)}});
        const auto &bytes = ranges_.back().bytes;
        // An offset into the copy that is word-aligned in the original.
        const size_t first = -bounds.begin % sizeof(uintptr_t);
        for (size_t offset = first; offset + sizeof(uintptr_t) <= bytes.size();
             offset += sizeof(uintptr_t)) {
            uintptr_t word;
            std::memcpy(&word, bytes.data() + offset, sizeof(word));
            if (points_elsewhere(word, found)) comparable_ = false;
        }
    }
}

bool library_memory::is_unchanged() const {
    return std::all_of(ranges_.begin(), ranges_.end(), [](const range &range) {
        return std::memcmp(range.begin, range.bytes.data(), range.bytes.size()) == 0;
    });
}

}  // namespace moorage::core
