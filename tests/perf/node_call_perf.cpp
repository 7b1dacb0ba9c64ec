// node_call_perf.cpp - an expert call between two processes over loopback: one token, hidden 2,048,
// float32. Measures the time beyond the holder's compute. The reply gives the compute time.
//
//   bin/node_call_perf [calls]
//
// A home sends the call and waits in its loop. A node receives it, computes a small expert and
// answers. A small expert keeps the subtracted time short. Wires take turns in rounds, so that a
// machine of varying speed treats them alike. Prints the median and the 99th percentile in
// microseconds.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tools/node/fingerprint.h"
#include "tools/node/peer_node.h"
#include "tools/node/wire_plugin.h"
#include "core/pipeline/run.h"
#include "tests/plugin/wire_certificates.h"

namespace {

using namespace moorage;
using namespace moorage::core;

constexpr uint32_t hidden = 2048;

[[noreturn]] void give_up(const std::string &text) {
    std::fprintf(stderr, "node_call_perf: %s\n", text.c_str());
    std::exit(1);
}

const char *const shape = R"(kind = "model"
name = "call"
layers = 1
moe_layers = 1
experts = 4
top_k = 1
hidden = 2048
moe_intermediate = 32
matrices = 3
weight_bytes = 2
expert_bytes = 393216
non_expert_bytes = 40000000
dense_bytes = 40000000
kv_token_layer_bytes = 8192
vocabulary = 256
[config]
model_type = "qwen2_moe"
intermediate_size = 64
num_attention_heads = 16
num_key_value_heads = 16
max_position_embeddings = 64
rms_norm_eps = 1e-06
rope_theta = 10000.0
hidden_act = "silu"
tie_word_embeddings = true
norm_topk_prob = false
decoder_sparse_step = 1
shared_expert_intermediate_size = 32
use_sliding_window = false
[sources]
geometry = "[M] test"
sizes = "[M] test"
config = "[M] test"
)";

node_plan plan_of(const model &source_model, const std::string &address) {
    node_plan plan;
    plan.servers = {{"home", {}}, {"node", {}}};
    if (!address.empty()) plan.servers[1].addresses = {address};
    plan.cluster = 1, plan.model = 2;
    plan.sizes = {1, source_model.config().experts, source_model.config().hidden, 64};
    plan.top_k = 1;
    plan.model_name = "call";
    std::vector<std::vector<uint32_t>> holders(source_model.config().experts, {1});
    set_holders(plan, holders);
    return plan;
}

struct wire_form {
    const char *name, *plugin;
    int64_t poll_us;
    bool tls;
};

// Parameters of one side, whose certificate names its server.
settings params_of(const wire_form &form, const test::certificate_folder &files,
                   const std::string &server) {
    settings params{{"poll_us", form.poll_us, "here"}};
    if (!form.tls) return params;
    params.push_back({"security", std::string("tls"), "here"});
    params.push_back({"certificate", files.file(server + ".pem"), "here"});
    params.push_back({"key", files.file(server + ".key"), "here"});
    params.push_back({"ca", files.file("ca.pem"), "here"});
    return params;
}

class calling_node final : public call_answers {
public:
    calling_node(const model &source_model, wire &opened_wire, const node_plan &plan)
        : pool_(1), node_({&opened_wire, &plan, {0, 11, "perf"}, &source_model, &pool_}) {
        node_.attach(this);
        node_.dial();
        for (int i = 0; i < 5000 && !node_.connections().call_link(1); ++i) node_.turn(1'000'000);
        if (!node_.connections().call_link(1))
            give_up("not connected: " + node_.connections().trouble(1));
        values_.assign(hidden, 0.25F);
    }
    // Nanoseconds beyond the compute.
    double call() {
        const expert_rows experts[] = {{1, 1}};
        const uint32_t rows[] = {0};
        const uint64_t begun = steady_ns();
        message_bytes written = node_.connections().take_memory();
        const auto room = write(written, call_view{0, 1, 1'000'000, experts, rows, {}}, hidden);
        std::ranges::copy(values_, room.begin());
        computed_us_ = UINT32_MAX;
        node_.connections().send(*node_.connections().call_link(1), std::move(written),
                                 message_kind::call, ++id_);
        while (computed_us_ == UINT32_MAX) node_.turn(1'000'000'000);
        return static_cast<double>(steady_ns() - begun) - 1000.0 * computed_us_;
    }

private:
    void answered(core::link &, const frame &message) override {
        reply_view reply;
        if (message.header.kind != message_kind::reply ||
            read(message.body, node_.plan().sizes, reply).reason != refusal_reason::none)
            give_up("a call is not answered");
        computed_us_ = reply.computed_us;
    }
    void gone(uint32_t) override { give_up("the node is gone"); }
    thread_pool pool_;
    peer_node node_;
    std::vector<float> values_;
    uint64_t id_ = 0;
    uint32_t computed_us_ = 0;
};

void measure(const wire_form &form, const test::certificate_folder &files, const registry &policies,
             const model &source_model, int calls, std::vector<double> &call_us) {
    run_config config;
    config.wire.plugin = form.plugin;
    int way[2];
    if (::pipe(way) != 0) give_up("no pipe");
    const pid_t child = ::fork();
    const auto open = [&](const node_plan &plan, const char *server) {
        config.wire.params = params_of(form, files, server);
        auto created = open_wire(config, policies, plan, wire_calls::beside);
        if (!created) give_up(created.failure().text);
        return std::move(*created);
    };
    if (child == 0) {
        const node_plan plan = plan_of(source_model, "");
        const auto opened_wire = open(plan, "node");
        thread_pool pool(1);
        peer_node node({opened_wire.get(), &plan, {1, 22, "perf"}, &source_model, &pool});
        const auto bound = node.listen("127.0.0.1:0");
        if (!bound) give_up(bound.failure().text);
        const std::string address = *bound + "\n";
        if (::write(way[1], address.data(), address.size()) < 0) ::_exit(1);
        for (;;) node.turn(1'000'000'000);
    }
    std::string address;
    for (char c = 0; ::read(way[0], &c, 1) == 1 && c != '\n';) address.push_back(c);
    ::close(way[0]), ::close(way[1]);
    {
        const node_plan plan = plan_of(source_model, address);
        const auto opened_wire = open(plan, "home");
        calling_node home(source_model, *opened_wire, plan);
        for (int i = 0; i < 50; ++i) home.call();
        for (int i = 0; i < calls; ++i) call_us.push_back(home.call() / 1000);
    }
    ::kill(child, SIGKILL);
    int state = 0;
    ::waitpid(child, &state, 0);
}

std::vector<wire_form> forms() {
    std::vector<wire_form> list = {{"tcp, sleeping", "tcp", 0, false},
                                   {"tcp, polling", "tcp", 1000, false},
                                   {"tcp with TLS, sleeping", "tcp", 0, true},
                                   {"tcp with TLS, polling", "tcp", 1000, true}};
    const std::filesystem::path wires = std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins/wire";
    if (std::filesystem::exists(wires / "ucx.so")) {
        list.push_back({"ucx, sleeping", "ucx", 0, false});
        list.push_back({"ucx, polling", "ucx", 1000, false});
    }
    return list;
}

}  // namespace

int main(int count, char **words) {
    const int calls = count > 1 ? std::atoi(words[1]) : 1000, rounds = 5;
    const auto folder = std::filesystem::temp_directory_path() / "moorage-node-call";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "call.toml") << shape;
    run_resources shared;
    const std::vector<std::filesystem::path> plugins{std::filesystem::path(MOORAGE_BINARY_DIR) /
                                                     "plugins"};
    if (const auto done = shared.scan(plugins); !done) give_up(done.failure().text);
    const auto source_model = shared.random((folder / "call.toml").string(), folder, 4);
    if (!source_model) give_up(source_model.failure().text);
    test::certificate_folder files;
    for (const char *server : {"home", "node"})
        files.write(server, test::certify(std::string("DNS:") + server, &files.authority));
    const auto tested = forms();
    std::vector<std::vector<double>> took(tested.size());
    for (int round = 0; round < rounds; ++round)
        for (size_t i = 0; i < tested.size(); ++i)
            measure(tested[i], files, shared.policies(), **source_model, calls / rounds, took[i]);
    std::printf("%-24s %10s %10s\n", "a call beyond compute, us", "p50", "p99");
    for (size_t i = 0; i < tested.size(); ++i) {
        std::sort(took[i].begin(), took[i].end());
        std::printf("%-24s %10.1f %10.1f\n", tested[i].name, took[i][took[i].size() / 2],
                    took[i][took[i].size() * 99 / 100]);
    }
    return 0;
}
