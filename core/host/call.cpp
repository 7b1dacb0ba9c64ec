// call.cpp - the names of the calls, and the board of a process without a supervisor.
#include "core/host/call.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace moorage::core {

namespace {

struct call_name {
    entry_point call;
    std::string_view name, kind;
};
constexpr call_name call_names[] = {
    {entry_point::none, "", ""},
    {entry_point::constructors, "constructors", ""},
    {entry_point::module, "moorage_module_v2", ""},
    {entry_point::descriptor, "descriptor", ""},
    {entry_point::init, "init", ""},
    {entry_point::deinit, "deinit", ""},
    {entry_point::create, "create", ""},
    {entry_point::get_interface, "get_interface", ""},
    {entry_point::destroy, "destroy", ""},
    {entry_point::activate, "activate", ""},
    {entry_point::deactivate, "deactivate", ""},
    {entry_point::reset, "reset", ""},
#define MOORAGE_CALL(member, table, function, kind, ...) \
    {entry_point::table##_##function, #function, kind},
    MOORAGE_CALLS(MOORAGE_CALL)
#undef MOORAGE_CALL
        {entry_point::thread, "thread", ""},
};
constexpr bool in_order() {
    for (size_t i = 0; i < std::size(call_names); ++i)
        if (static_cast<size_t>(call_names[i].call) != i) return false;
    return std::size(call_names) == entry_points;
}
static_assert(in_order(), "call_names has one line per entry, in its order");

const call_name &line_of(entry_point call) {
    const auto index =
        static_cast<size_t>(call);  // the board may have been overwritten by a policy
    return call_names[index < std::size(call_names) ? index : 0];
}

template <size_t Bytes>
void store_text(char (&place)[Bytes], std::string_view text) {
    const size_t kept = std::min(text.size(), Bytes - 1);
    std::memcpy(place, text.data(), kept);
    place[kept] = '\0';
}
template <size_t Bytes>
bool holds(const char (&place)[Bytes], std::string_view text) {
    return text.substr(0, Bytes - 1) == place;
}

call_board unshared;

std::atomic<uint32_t> always_own{1};

// A page that the kernel clears in children. If it cannot, every process counts as the host's own.
std::atomic<uint32_t> *page_of_this_process() {
    const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void *page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return &always_own;
    if (madvise(page, bytes, MADV_WIPEONFORK) == 0) return new (page) std::atomic<uint32_t>(1);
    munmap(page, bytes);
    return &always_own;
}

}  // namespace

call_board *board = &unshared;
constinit thread_local uint32_t lane_of_thread = 0;
std::atomic<uint32_t> *own_process = &always_own;

void become_own_process() {
    if (own_process == &always_own) own_process = page_of_this_process();
    own_process->store(1);
}

void end_stranger(uint32_t owner) {
    board->forked_owner = lasting_owner(owner) + 1;
    _exit(0);
}

std::string_view name_of(entry_point call) { return line_of(call).name; }
std::string_view kind_of(entry_point call) { return line_of(call).kind; }

uint32_t owner_being_opened(std::string_view library) {
    store_text(board->owners[0].library, library);
    return 0;
}

uint32_t owner_of(std::string_view policy, std::string_view kinds, std::string_view library) {
    uint32_t count = std::max(board->owner_count.load(), 1u), index = 1;
    while (index < count && !(holds(board->owners[index].policy, policy) &&
                              holds(board->owners[index].kinds, kinds) &&
                              holds(board->owners[index].library, library)))
        ++index;
    if (index < count) return index;
    index = std::min(count, call_board::owners_max - 1);
    store_text(board->owners[index].policy, policy);
    store_text(board->owners[index].kinds, kinds);
    store_text(board->owners[index].library, library);
    board->owner_count = index + 1;
    return index;
}

uint32_t lasting_owner(uint32_t owner) {
    return owner == 0 ? owner_of("", "", board->owners[0].library) : owner;
}

void note_on_board(std::string_view text) {
    store_text(board->note, text);
    board->note_lane = lane_of_thread;
    board->note_call = own_lane().calls.load();
}

void note_culprit(std::string_view library, uint32_t owner_from_1) {
    store_text(board->culprit, library);
    board->culprit_owner = owner_from_1;
}

}  // namespace moorage::core
