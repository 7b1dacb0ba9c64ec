// shared_table.cpp - a policy library without a version script. Its tables are the same variables
// as those of every other such library. Built twice, under two names.
#include "../bad/raw.hpp"

// Like a template of a header. Both libraries have it, with different content.
template <int N>
struct shared_table {
    static const moorage_cache *table;
};
template <int N>
const moorage_cache *shared_table<N>::table = &raw::cache;

namespace {

const void *find(moorage_plugin *plugin, const char *id) {
    return raw::get_interface(plugin, id) ? shared_table<1>::table : nullptr;
}

}  // namespace

RAW_MODULE(SHARED_NAME, find, {})
