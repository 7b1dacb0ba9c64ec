// demo_test.cpp - goal: the demo model is as good here as in the reference, in the loss of every
// token, the logits, the greedy texts and the perplexity. Method: compare with the float32
// reference results of tests/data.
#include <cmath>
#include <cstring>
#include <fstream>

#include "core/base/json.h"
#include "core/base/mapped_file.h"
#include "core/base/safetensors.h"
#include "core/source/sampler.h"
#include "tests/golden/golden_fixture.h"

namespace demo_test {

using namespace moorage::test;

namespace {

const std::filesystem::path references = std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/data";
const char *const texts[] = {"docs", "fr", "prose", "py"};

std::unique_ptr<model> demo() {
    return open_or_fail(std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo");
}

template <class Value>
std::vector<Value> values_of(const safetensors &file, const std::string &name) {
    const tensor *found = file.find(name);
    REQUIRE_MESSAGE(found != nullptr, name);
    std::vector<Value> values(found->elements());
    std::memcpy(values.data(), found->bytes.data(), found->bytes.size());
    return values;
}

// The negative log-likelihood of `next` under softmax(logits).
double loss_of(std::span<const float> logits, int32_t next) {
    const double largest = logits[static_cast<size_t>(most_probable(logits))];
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - largest);
    return std::log(sum) + largest - logits[static_cast<size_t>(next)];
}

struct bench {
    std::unique_ptr<model> loaded_model = demo();
    thread_pool pool{0};
    std::unique_ptr<cpu_model> compute;
    std::unique_ptr<forward> run;
    size_t vocabulary = loaded_model->config().vocabulary;

    explicit bench(uint32_t tokens_max) {
        compute_limits limits;
        limits.tokens_max = limits.outputs_max = limits.context_max = tokens_max;
        compute = compute_of(*loaded_model, pool, limits);
        run = std::make_unique<forward>(*compute, *loaded_model);
    }
    std::span<const float> logits(size_t position) const {
        return compute->logits().subspan(position * vocabulary, vocabulary);
    }
};

// Whether the continuation is the reference's. If not, says by how much the first different choice
// differs.
bool greedy_equal(bench &fixture, const std::string &text, const std::vector<int32_t> &ids) {
    constexpr uint32_t prompt = 32;
    (*fixture.run)(prompt_pass(std::span(ids).first(prompt), 0, 0, false));
    for (uint32_t position = prompt; position < ids.size(); ++position) {
        const auto logits = fixture.logits(0);
        const int32_t next = most_probable(logits);
        const int32_t expected[] = {ids[position]};
        if (next != expected[0]) {
            MESSAGE(text << ": token " << position - prompt << " is " << next << " ("
                         << logits[static_cast<size_t>(next)] << "), the reference's "
                         << expected[0] << " has " << logits[static_cast<size_t>(expected[0])]);
            return false;
        }
        (*fixture.run)(prompt_pass(expected, 0, position, false));
    }
    return true;
}

}  // namespace

TEST_CASE("losses, logits and greedy texts of the demo model") {
    const auto file = references / "demo_reference.safetensors";
    const auto mapped = mapped_file::open(file);
    REQUIRE(mapped.ok());
    const auto parsed = parse_safetensors(mapped.value().bytes(), file.string());
    REQUIRE(parsed.ok());
    bench fixture(160);
    int equal = 0;
    for (const std::string text : texts) {
        CAPTURE(text);
        const auto ids = values_of<int32_t>(parsed.value(), text + ".input_ids");
        const auto losses = values_of<float>(parsed.value(), text + ".nll");
        const auto last = values_of<float>(parsed.value(), text + ".logits_last4");
        REQUIRE(ids.size() == 160);
        REQUIRE(losses.size() == 159);
        (*fixture.run)(prompt_pass(ids, 0, 0, true));
        double worst = 0;
        for (size_t i = 0; i < losses.size(); ++i)
            worst = std::max(worst, std::abs(loss_of(fixture.logits(i), ids[i + 1]) - losses[i]));
        CHECK(worst <= 1e-3);
        const double error =
            relative_error(fixture.compute->logits().subspan(156 * fixture.vocabulary), last);
        CHECK(error <= 2e-3);
        MESSAGE(text << ": losses within " << worst << ", logits within " << error);
        equal += greedy_equal(fixture, text, values_of<int32_t>(parsed.value(), text + ".greedy"));
    }
    CHECK(equal >= 3);
}

TEST_CASE("perplexity of the demo model") {
    const auto file = references / "demo_perplexity.json";
    std::ifstream stream(file);
    const json domains = json::parse(stream);
    bench fixture(257);
    CHECK(domains.size() == 4);
    for (const auto &entry : domains.items()) {
        const std::string &domain = entry.key();
        const json &expected = entry.value();
        CAPTURE(domain);
        double loss = 0;
        size_t count = 0;
        for (const json &window : expected.at("windows")) {
            const auto ids = window.get<std::vector<int32_t>>();
            (*fixture.run)(prompt_pass(std::span(ids).first(ids.size() - 1), 0, 0, true));
            for (size_t i = 0; i + 1 < ids.size(); ++i, ++count)
                loss += loss_of(fixture.logits(i), ids[i + 1]);
        }
        const double mean = loss / static_cast<double>(count);
        const double difference = std::exp(mean - expected.at("nll").get<double>()) - 1;
        MESSAGE(domain << ": nll " << mean << ", perplexity " << std::exp(mean) << ", off by "
                       << difference);
        CHECK(std::abs(difference) <= 1e-3);
    }
}

}  // namespace demo_test
