// lent_memory_test.cpp - goal: policies can read lent memory but not write it, also after a fork.
// Memory behind an output array cannot be touched. Method: children that try, and die of it.
#include <doctest/doctest.h>

#include <unistd.h>

#include <csignal>
#include <numeric>

#include "core/host/fenced_memory.h"
#include "core/host/lent_memory.h"
#include "core/host/supervise.h"
#include "core/store/ledger.h"

namespace lent_memory_test {

using namespace moorage::core;

namespace {

// The signal that `deed` dies of; 0: it lives.
int signal_of(const std::function<void()> &deed) {
    for (const int signal : {SIGSEGV, SIGBUS}) std::signal(signal, SIG_DFL);
    return supervise(
               [&](const sender &) {
                   deed();
                   return 0;
               },
               {})
        .signal;
}

}  // namespace

TEST_CASE("what is written on the host's side is read on the other, which cannot be written") {
    lent_vector<uint32_t> values(1000);
    std::iota(values.begin(), values.end(), 0u);
    const uint32_t *shown = lent(values);
    CHECK(shown != values.data());
    for (uint32_t i = 0; i < 1000; ++i) REQUIRE(shown[i] == i);
    values[17] = 4711;
    CHECK(shown[17] == 4711);
    CHECK(signal_of([&] { values[17] = 1; }) == 0);
    CHECK(signal_of([&] { const_cast<uint32_t *>(shown)[17] = 1; }) == SIGSEGV);
    CHECK(lent(static_cast<uint32_t *>(nullptr)) == nullptr);
}

TEST_CASE("guard off lends the host's own side") {
    lent_vector<uint32_t> values(3);
    board->guard = call_guard::off;
    CHECK(lent(values) == values.data());
    board->guard = call_guard::usual;
    CHECK(lent(values) != values.data());
}

TEST_CASE("memory is used again, blocks do not overlap, and large ones are had as well") {
    std::vector<lent_vector<uint8_t>> many;
    for (size_t i = 0; i < 200; ++i) many.emplace_back(1 + i * 37, static_cast<uint8_t>(i));
    for (size_t i = 0; i < 200; i += 2) many[i] = lent_vector<uint8_t>();
    for (size_t i = 0; i < 200; i += 2) many[i].assign(5000, static_cast<uint8_t>(i));
    for (size_t i = 0; i < 200; ++i)
        for (const uint8_t byte : many[i]) REQUIRE(byte == static_cast<uint8_t>(i));
    lent_vector<uint8_t> large(size_t{100} << 20);
    large.back() = 3;
    CHECK(lent(large)[large.size() - 1] == 3);
}

TEST_CASE("a child has memory of its own with the same content, parent and child apart") {
    lent_vector<uint32_t> values(10, 5);
    const uint32_t *shown = lent(values);
    const ending result = supervise(
        [&](const sender &) {
            if (values[3] != 5 || shown[3] != 5) return 1;
            values[3] = 6;
            lent_vector<uint32_t> later_values(10, 7);
            return shown[3] == 6 && values[4] == 5 ? 0 : 2;
        },
        {});
    CHECK(result.finished);
    CHECK(result.exit_code == 0);
    CHECK(values[3] == 5);
    CHECK(shown[3] == 5);
}

TEST_CASE("no policy can change the residency view") {
    ledger truth(2, 4, {3});
    const moorage_residency *view = truth.view();
    CHECK(view->layers == 2);
    truth.admit(5);
    truth.land(5, MOORAGE_WHOLE);
    CHECK(view->host_state[5] == MOORAGE_WHOLE);
    CHECK(view->host_used[0] == 1);
    CHECK(view->host_slots[0] == 3);
    CHECK(view->host_split[1] == 1);
    const auto written = [&](auto *place) {
        using value = std::remove_const_t<std::remove_pointer_t<decltype(place)>>;
        return signal_of([=] { *const_cast<value *>(place) = value{}; });
    };
    CHECK(written(view->host_state + 5) == SIGSEGV);
    CHECK(written(view->host_used) == SIGSEGV);
    CHECK(written(view->host_slots) == SIGSEGV);
    CHECK(written(view->host_split) == SIGSEGV);
    CHECK(written(&view->host_state) == SIGSEGV);
    CHECK(written(&view->experts) == SIGSEGV);
}

TEST_CASE("behind the last element of an output array nothing can be touched") {
    fenced_vector<uint16_t> output(2049);
    output[2048] = 1;
    CHECK(signal_of([&] { output.data()[2048] = 2; }) == 0);
    CHECK(signal_of([&] { output.data()[2049] = 2; }) == SIGSEGV);
    fenced_vector<uint32_t> growing;
    for (uint32_t i = 0; i < 5000; ++i) growing.push_back(i);
    CHECK(std::accumulate(growing.begin(), growing.end(), 0u) == 5000u * 4999 / 2);
}

}  // namespace lent_memory_test
