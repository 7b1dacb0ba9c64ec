// wire_base.hpp - the wire of sdk/template/cpp, which keeps every rule. The bad ones derive from it
// and break one. They can use its private members.
#pragma once

#include <moorage/moorage.hpp>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#pragma push_macro("MOORAGE_POLICIES")
#undef MOORAGE_POLICIES
#define MOORAGE_POLICIES(...)
#include "base_wire.inc"  // made of the template by CMakeLists.txt
#pragma pop_macro("MOORAGE_POLICIES")

using wire_base = base_policy;
using parts = std::span<const moorage_wire_part>;
using events = std::span<moorage_wire_event>;
