// executors_test.cpp - goal: every executor that a configuration can name offers what its users
// call. Method: compare the tables with the kinds; run `moorage executors` and read its JSON.
#include <doctest/doctest.h>

#include <string>

#include "core/base/json.h"
#include "core/execute/executor_module.h"
#include "tests/unit/program.h"

namespace executors_test {

using namespace moorage::core;

TEST_CASE("each kind of executor has its table, under the same name") {
    REQUIRE(executor_modules().size() == std::size(executors));
    for (const executor_kind &kind : executors) {
        CAPTURE(kind.name);
        const executor_module &module = module_of(kind);
        CHECK(module.name == kind.name);
        CHECK((module.probe != nullptr));
        CHECK((module.create != nullptr));
        // A run asks for room if the memory is a GPU's.
        CHECK((module.room_for_experts != nullptr) == (kind.memory == fast_memory::gpu));
        // `model check` and `profile measure` take every real executor.
        CHECK((module.check_golden != nullptr) == kind.real);
        CHECK((module.measure != nullptr) == kind.real);
    }
    CHECK((module_of(*find_executor("cpu")).compute != nullptr));  // for the emulator
}

TEST_CASE("an executor that is not here says why, one that is names its devices") {
    for (const executor_module *module : executor_modules()) {
        CAPTURE(module->name);
        const executor_probe found = module->probe();
        CHECK(found.devices.empty() == !found.problem.empty());
    }
}

TEST_CASE("the command prints the same list as text and as JSON") {
    const moorage::test::program runner;
    const auto text = runner.run({"executors"}),
               document = runner.run({"executors", "--json", "-"});
    CHECK(text.code == 0);
    CHECK(document.code == 0);
    const json list = json::parse(document.output)["executors"];
    REQUIRE(list.size() == std::size(executors));
    for (size_t i = 0; i < list.size(); ++i) {
        CHECK(list[i]["name"] == std::string(executors[i].name));
        CHECK(list[i]["available"] == !list[i]["devices"].empty());
        CHECK(text.output.find(executors[i].name) != std::string::npos);
    }
    CHECK(list[0]["available"] == true);
    CHECK(list[1]["available"] == true);
#ifndef MOORAGE_HAS_CUDA
    CHECK(list[2]["problem"].get<std::string>().find("-DMOORAGE_CUDA=ON") != std::string::npos);
#endif
}

}  // namespace executors_test
