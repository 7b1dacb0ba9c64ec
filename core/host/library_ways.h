// library_ways.h - what a policy library can do to its process, read from what it takes from
// others; and whether it remembers anything from one row to the next.
//
// A library that keeps to itself takes nothing but arithmetic, memory and texts from the C and C++
// libraries. It cannot change signals, locale or directory, start threads or open files, but by
// system calls of its own making. So these are looked at once a run and not after each call, and a
// worker goes on with the next row unless the library's own memory changed (decision 0048).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/host/elf_symbols.h"

namespace moorage::core {

bool keeps_to_itself(const elf_symbols &symbols);

// The memory that a library may write: its static variables.
class library_memory {
public:
    library_memory() = default;
    // Of the library that has `code`, as it is now.
    explicit library_memory(const void *code);

    // All that it remembers lies in static variables, none of which points to other memory.
    bool is_comparable() const { return comparable_; }
    bool is_unchanged() const;

private:
    struct range {
        const unsigned char *begin;
        std::vector<unsigned char> bytes;
    };
    std::vector<range> ranges_;
    bool comparable_ = false;
};

}  // namespace moorage::core
