// library_ways.h - what a policy library can do to its process, judged by the symbols that it
// imports; and whether it keeps any state from one row to the next.
//
// A library that keeps to itself imports only arithmetic, memory and text functions of the C and
// C++ libraries. It cannot change signals, locale or directory, start threads or open files, except
// by its own system calls. So these are checked once per run and not after each call. A worker
// continues with the next row unless the library's own memory has changed (decision 0048).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/host/elf_symbols.h"

namespace moorage::core {

bool is_self_contained(const elf_symbols &symbols);

// The memory that a library may write: its static variables.
class library_memory {
public:
    library_memory() = default;
    // The current memory of the library that contains `code`.
    explicit library_memory(const void *code);

    // Is all its state in static variables, none of which points to other memory?
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
