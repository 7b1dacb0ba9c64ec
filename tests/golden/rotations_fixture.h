// rotations_fixture.h - the models of rotations/, whose rotations follow the length of the text,
// and the expected logits of reference.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "core/base/mapped_file.h"
#include "core/base/safetensors.h"
#include "core/source/model_source.h"
#include "tests/golden/golden_fixture.h"
#include "tests/squared_error.h"

namespace moorage::test {

// Root mean square of the difference over the standard deviation, as in quantised_test.cpp, and the
// error that float32 allows for a single token's logits.
inline constexpr double rotations_error_max = 2e-6, one_token_error_max = 2e-5;

struct rotations_golden {
    static constexpr uint32_t prompt = 8;  // ids before the first of `greedy_logits`
    // Lengths of scored texts: at the trained length, near it, far from it.
    static constexpr uint32_t windows[] = {40, 12, 24, 25};

    std::unique_ptr<model> loaded_model;
    std::vector<int32_t> input_ids, greedy;  // greedy: with its prompt

    explicit rotations_golden(const std::string &name)
        : loaded_model(open_or_fail(golden_path("rotations/" + name))) {
        const auto path = golden_path("rotations/" + name) / "golden.safetensors";
        const auto file = mapped_file::open(path);
        REQUIRE(file.ok());
        const auto parsed = parse_safetensors(file->bytes(), path.string());
        REQUIRE(parsed.ok());
        input_ids = values<int32_t>(*parsed, "input_ids");
        greedy = values<int32_t>(*parsed, "greedy");
        steps_ = values<float>(*parsed, "greedy_logits");
        for (const uint32_t window : windows)
            scored_[window] = values<float>(
                *parsed, window == 40 ? "logits" : "logits_" + std::to_string(window));
    }
    std::vector<model_request> scored_texts() const {
        std::vector<model_request> requests;
        for (const uint32_t window : windows)
            requests.push_back({{input_ids.begin(), input_ids.begin() + window}, 0});
        return requests;
    }
    // The greedy text from prompts of several lengths, as far as the reference has it.
    std::vector<model_request> written_texts() const {
        std::vector<model_request> requests;
        for (const uint32_t prompt_length : {8u, 20u, 24u, 25u, 30u})
            requests.push_back({{greedy.begin(), greedy.begin() + prompt_length},
                                static_cast<uint32_t>(greedy.size()) - prompt_length});
        return requests;
    }
    // The logits at `position` in a text of scored_texts() or written_texts().
    std::span<const float> logits(const model_request &request, uint32_t position) const {
        const size_t width = loaded_model->config().vocabulary;
        if (request.new_tokens == 0)
            return std::span(scored_.at(static_cast<uint32_t>(request.ids.size())))
                .subspan(position * width, width);
        return std::span(steps_).subspan((position + 1 - prompt) * width, width);
    }
    double mean_nll(const std::vector<model_request> &requests) const {
        double sum = 0, count = 0;
        for (const model_request &request : requests)
            for (uint32_t i = 1; i < request.ids.size(); ++i, ++count)
                sum += negative_log_likelihood(logits(request, i - 1), request.ids[i]);
        return sum / count;
    }

private:
    template <class Value>
    static std::vector<Value> values(const safetensors &file, const std::string &name) {
        const tensor *found = file.find(name);
        REQUIRE_MESSAGE(found != nullptr, name);
        std::vector<Value> numbers(found->elements());
        std::memcpy(numbers.data(), found->bytes.data(), found->bytes.size());
        return numbers;
    }
    std::map<uint32_t, std::vector<float>> scored_;
    std::vector<float> steps_;
};

// -log p of a token by these logits, in nats.
inline double surprise(std::span<const float> logits, size_t token) {
    const double most = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - most);
    return std::log(sum) + most - logits[token];
}

// The error of all logits that the requests ask for. The likelihood of the reference's likeliest
// token has the same limit. run_pass(pass) computes one pass, and `computed` has its results.
inline double error_of_requests(const rotations_golden &golden,
                                const std::vector<model_request> &requests, model_source &source,
                                const pass_results &computed,
                                const std::function<void(const pass &)> &run_pass) {
    source.connect(computed);
    const size_t width = golden.loaded_model->config().vocabulary;
    std::vector<float> is, expected;
    double likelihood_is = 0, likelihood_expected = 0;
    for (pass next; source.next(next);) {
        run_pass(next);
        size_t row = 0;
        for (const pass_token &token : next.tokens)
            if (token.output) {
                const auto row_is = computed.logits().subspan(row++ * width, width),
                           wanted = golden.logits(requests[token.request], token.position);
                CHECK(relative_error(row_is, wanted) <= one_token_error_max);
                const auto likeliest =
                    static_cast<size_t>(std::ranges::max_element(wanted) - wanted.begin());
                likelihood_is += surprise(row_is, likeliest);
                likelihood_expected += surprise(wanted, likeliest);
                is.insert(is.end(), row_is.begin(), row_is.end());
                expected.insert(expected.end(), wanted.begin(), wanted.end());
            }
    }
    for (size_t i = 0; i < requests.size(); ++i) {
        const model_request &request = requests[i];
        if (request.new_tokens == 0) continue;
        const std::vector<int32_t> rest(
            golden.greedy.begin() + static_cast<ptrdiff_t>(request.ids.size()),
            golden.greedy.end());
        CHECK(source.written()[i] == rest);
    }
    CHECK(std::abs(likelihood_is - likelihood_expected) <=
          rotations_error_max * likelihood_expected);
    return std::sqrt(squared_error(is, expected));
}

}  // namespace moorage::test
