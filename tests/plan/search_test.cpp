#include "plan/search.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/attention.h"
#include "plan/published.h"
#include "tests/plan/mistakes.h"

namespace mytorch::plan {
namespace {

Found found_for(const char* model, int64_t gpus, const char* gpu = "h100",
                const char* network = "ib400") {
  Wanted wanted;
  wanted.gpus = gpus;
  return search(find_model(model), machine_of(gpu, network), wanted);
}

// ---- the published table ----

TEST(PlanPublished, MegatronsSpeedsArePredictedWithinAFifth) {
  const std::vector<Compared> all = compare_with_megatron(machine_of("h100", "ib400"));
  ASSERT_EQ(all.size(), 9);
  for (const Compared& c : all) {
    EXPECT_LT(std::abs(c.error), 0.2) << c.measured.model << " " << c.error;
    EXPECT_LE(c.plan.memory.total(), 80e9);
  }
}

TEST(PlanPublished, OperationsAreCountedAsTheTableDoes) {
  // 72 tokens layers width^2 (1 + sequence / (6 width) + vocabulary / (12 width layers)): its
  // utilization is that of 989 TFLOP/s.
  for (const Measured& row : megatron_table()) {
    const Model m = find_model(row.model);
    const double tokens = number(m.batch) * number(m.sequence), w = number(m.width);
    const double expected =
        72 * tokens * number(m.layers) * w * w *
        (1 + number(m.sequence) / (6 * w) + number(m.vocabulary) / (12 * w * number(m.layers)));
    EXPECT_NEAR(m.flops() / expected, 1, 1e-9) << row.model;
    EXPECT_NEAR(row.teraflops / 989, row.utilization, 0.006) << row.model;
  }
}

// ---- ranking ----

TEST(PlanSearch, RanksWhatFitsByTime) {
  const Found found = found_for("gpt3-175b", 1024, "h200");
  ASSERT_GT(found.plans.size(), 100);
  EXPECT_EQ(found.tried, static_cast<int64_t>(found.plans.size()) + found.too_large);
  const Model m = find_model("gpt3-175b");
  double before = 0;
  for (const Plan& plan : found.plans) {
    EXPECT_GE(plan.step.seconds(), before);
    before = plan.step.seconds();
    EXPECT_LE(plan.memory.total(), 141e9);
    EXPECT_EQ(plan.layout.gpus(), 1024);
    EXPECT_EQ(reason_against(m, plan.layout), "");
    EXPECT_GT(plan.utilization, 0);
    EXPECT_LT(plan.utilization, 0.7);
  }
  // The model of 175 billion parameters is divided, and a step keeps the GPUs busy.
  const Layout& best = found.plans.front().layout;
  EXPECT_TRUE(best.tensor > 1 || best.pipeline > 1 || best.zero == 3);
  EXPECT_GT(found.plans.front().utilization, 0.35);
}

TEST(PlanSearch, OrdersNetworksGpusAndMemory) {
  const auto best = [](const Found& found) { return found.plans.front().step.seconds(); };
  const double ib400 = best(found_for("gpt-70b", 256)),
               ib200 = best(found_for("gpt-70b", 256, "h100", "ib200"));
  const double eth100 = best(found_for("gpt-70b", 256, "h100", "eth100"));
  EXPECT_LT(ib400, ib200);
  EXPECT_LT(ib200, eth100);
  EXPECT_LT(best(found_for("gpt-70b", 512)), ib400);
  EXPECT_LE(best(found_for("gpt-70b", 256, "h200")), ib400);
  // Whatever fits into 80 GB fits into 141.
  EXPECT_LE(found_for("gpt-70b", 256, "h200").too_large, found_for("gpt-70b", 256).too_large);
}

TEST(PlanSearch, KeepsWhatIsGiven) {
  Wanted wanted;
  wanted.gpus = 64;
  wanted.tensor = 4;
  wanted.pipeline = 2;
  wanted.zero = 1;
  wanted.recompute = Recompute::kFull;
  const Found found = search(find_model("llama2-7b"), machine_of("h100", "ib400"), wanted);
  ASSERT_FALSE(found.plans.empty());
  for (const Plan& plan : found.plans) {
    const Layout& l = plan.layout;
    EXPECT_TRUE(l.tensor == 4 && l.pipeline == 2 && l.zero == 1 && l.recompute == Recompute::kFull);
  }
}

TEST(PlanSearch, SaysWhatIsTooLarge) {
  const Found found = found_for("llama3.1-405b", 8);
  EXPECT_TRUE(found.plans.empty());
  ASSERT_TRUE(found.smallest.has_value());
  EXPECT_GT(found.smallest->memory.total(), 80e9);
}

TEST(PlanSearch, DividesExperts) {
  const Found found = found_for("mixtral-8x7b", 64);
  ASSERT_FALSE(found.plans.empty());
  bool divided = false;
  for (const Plan& plan : found.plans) divided |= plan.layout.expert == 8;
  EXPECT_TRUE(divided);
}

// ---- parts of a step ----

// Runs the order of 1F1B for stages whose forwards take one unit and backwards two.
double simulated(int64_t stages, int64_t n) {
  const auto p = static_cast<size_t>(stages);
  std::vector<std::vector<double>> forward(p), backward(p);  // when they end
  std::vector<double> free(p, 0);
  std::vector<size_t> step(p, 0);
  // The sequence of a stage: forwards, then one of each in turn, then backwards.
  const auto order = [&](size_t s) {
    std::vector<char> calls;
    const int64_t ahead = std::min<int64_t>(stages - static_cast<int64_t>(s) - 1, n);
    for (int64_t i = 0; i < ahead; ++i) calls.push_back('f');
    for (int64_t i = ahead; i < n; ++i) {
      calls.push_back('f');
      calls.push_back('b');
    }
    for (int64_t i = 0; i < ahead; ++i) calls.push_back('b');
    return calls;
  };
  std::vector<std::vector<char>> calls;
  for (size_t s = 0; s < p; ++s) calls.push_back(order(s));
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < p; ++s) {
      if (step[s] == calls[s].size()) continue;
      const bool is_forward = calls[s][step[s]] == 'f';
      std::vector<double>& mine = is_forward ? forward[s] : backward[s];
      const size_t i = mine.size();
      double ready = 0;
      if (is_forward && s > 0) {
        if (forward[s - 1].size() <= i) continue;
        ready = forward[s - 1][i];
      }
      if (!is_forward && s + 1 < p) {
        if (backward[s + 1].size() <= i) continue;
        ready = backward[s + 1][i];
      }
      free[s] = std::max(free[s], ready) + (is_forward ? 1 : 2);
      mine.push_back(free[s]);
      ++step[s];
      moved = true;
    }
  }
  return *std::max_element(free.begin(), free.end());
}

TEST(PlanStep, BubblesAreThoseOfTheSchedule) {
  Model m = find_model("gpt3-175b");
  m.vocabulary = 8;  // stages take the same time
  m.batch = 64;
  Machine machine = machine_of("h100", "ib400");
  machine.outer.bandwidth = 1e30;
  machine.outer.latency = 0;
  for (const int64_t pipeline : {2, 4, 8}) {
    for (const int64_t micro_batch : {1, 4, 8}) {
      Layout l;
      l.pipeline = pipeline;
      l.micro_batch = micro_batch;
      l.tensor = 8;
      const Step step = step_of(m, l, {}, machine);
      const int64_t n = m.batch / micro_batch;
      const double idle = simulated(pipeline, n) / static_cast<double>(3 * n) - 1;
      EXPECT_NEAR(step.bubble / (step.compute + step.tensor) / idle, 1, 0.04)
          << pipeline << " " << micro_batch;
      if (n % pipeline != 0) continue;
      Layout interleaved = l;
      interleaved.interleave = 3;
      EXPECT_NEAR(step_of(m, interleaved, {}, machine).bubble * 3 / step.bubble, 1, 1e-6);
    }
  }
}

TEST(PlanStep, CollectivesTakeWhatTheirLinksAllow) {
  Machine m = machine_of("h100", "ib400");
  m.inner = {"", 100e9, 1e-6, 1};
  m.outer = {"", 10e9, 10e-6, 1};
  // In a node: 7 messages of an eighth.
  EXPECT_NEAR(all_gather_seconds(m, {8, 1}, 8e9), 7e-6 + 7e9 / 100e9, 1e-9);
  EXPECT_NEAR(all_reduce_seconds(m, {8, 1}, 8e9), 2 * all_gather_seconds(m, {8, 1}, 8e9), 1e-12);
  // Two ranks on different nodes have one adapter each; all 16 GPUs of two nodes have eight.
  EXPECT_NEAR(all_gather_seconds(m, {2, 8}, 2e9), 10e-6 + 1e9 / 10e9, 1e-9);
  EXPECT_NEAR(all_gather_seconds(m, {16, 1}, 16e9), 14e-6 + 10e-6 + 15e9 / 80e9, 1e-9);
  EXPECT_EQ(all_gather_seconds(m, {1, 1}, 1e9), 0);
  m.curves = {Curve{"broadcast", {8, 1}, {{8, 1}}}};
  for (const auto& [name, seconds] : collectives()) EXPECT_EQ(seconds(m, {8, 1}, 0), 0) << name;
  EXPECT_NEAR(all_to_all_seconds(m, {16, 1}, 16e9), 8e9 / 10e9 + 10e-6, 1e-9);
  EXPECT_LT(message_seconds(m, {2, 4}, 1e9), message_seconds(m, {2, 8}, 1e9));
}

TEST(PlanStep, AttentionOverSplitSequences) {
  Machine m = machine_of("h100", "ib400");
  m.gpu.kernel = 0;
  m.gpu.attention_half = 1e-9;
  m.inner = {"", 1e9, 1e-12, 1};
  const SplitAttention attention{.heads = 8, .key_heads = 2, .length = 8192, .width = 64};
  for (const bool backward : {false, true}) {
    const double alone = attention_seconds(m.gpu, 1, 8, 8192, 8192, 64, true, backward);
    for (const auto function : {ring_attention, ulysses_attention}) {
      const AttentionTime one = function(m, attention, {1, 1}, backward);
      EXPECT_NEAR(one.compute, alone, 1e-12);
      EXPECT_EQ(one.exchange, 0);
      EXPECT_NEAR(function(m, attention, {4, 1}, backward).compute, alone / 4, 1e-12);
    }
    // Three messages of keys and values of 2048 rows, and in backward of float32 gradients, less
    // what a quarter of the work of a rank hides of each.
    const double bytes = 2 * 2048 * 2 * 64 * (backward ? 2 + 4 : 2);
    EXPECT_NEAR(ring_attention(m, attention, {4, 1}, backward).exchange,
                3 * (bytes / 1e9 - alone / 16), 1e-9);
    // Three quarters of the rows of 8, 2, 2 and 8 heads.
    EXPECT_NEAR(ulysses_attention(m, attention, {4, 1}, backward).exchange,
                0.75 * 2 * 2048 * 64 * (8 + 2 + 2 + 8) / 1e9, 1e-9);
  }
}

TEST(PlanStep, RecomputationTakesTimeAndFreesMemory) {
  const Model m = find_model("gpt-32b");
  const Machine machine = machine_of("h100", "ib400");
  Layout l;
  l.data = 8;
  l.tensor = 8;
  l.zero = 1;
  const Plan none = plan_of(m, machine, l);
  l.recompute = Recompute::kSelective;
  const Plan selective = plan_of(m, machine, l);
  l.recompute = Recompute::kFull;
  const Plan full = plan_of(m, machine, l);
  EXPECT_LT(none.step.seconds(), selective.step.seconds());
  EXPECT_LT(selective.step.seconds(), full.step.seconds());
  EXPECT_GT(none.memory.activations, selective.memory.activations);
  EXPECT_GT(selective.memory.activations, full.memory.activations);
  // A third of the operations again.
  EXPECT_NEAR(full.step.compute / none.step.compute, 4.0 / 3, 0.06);
}

// A stack of feed-forward layers alone.
Model stack_of_layers() {
  Model m;
  m.name = "stack";
  m.layers = 3;
  m.width = 512;
  m.hidden = 1024;
  m.sequence = 128;
  m.batch = 12;
  return m;
}

TEST(PlanStep, ModelsMayLackAttentionAndVocabulary) {
  const Model m = stack_of_layers();
  check(m);
  // A norm and two matrices in each layer, and nothing around them.
  EXPECT_EQ(m.parameters(), 3 * (512 + 2 * 512 * 1024));
  EXPECT_EQ(parameters_of_rank(m, {}, 0).all(), m.parameters());
  EXPECT_EQ(m.flops(), 6.0 * 12 * 128 * 3 * 2 * 512 * 1024);
  Layout l;
  l.micro_batch = 12;
  const Memory memory = memory_of(m, l, {}, Gpu{});
  EXPECT_EQ(memory.buffers, 0);
  // The input of the norm, its result, and those of both sides of the activation.
  EXPECT_EQ(memory.activations, 3 * 12 * 128 * 2.0 * (2 * 512 + 2 * 1024));
  const Machine machine = machine_of("h100", "ib400");
  Model with = m;
  with.vocabulary = 1000;
  EXPECT_GT(step_of(with, l, {}, machine).compute, step_of(m, l, {}, machine).compute);
  with = m;
  with.heads = with.key_heads = 4;
  with.head_width = 128;
  EXPECT_GT(step_of(with, l, {}, machine).compute, step_of(m, l, {}, machine).compute);
  Model half = m;
  half.heads = 4;
  expect_error([&] { check(half); }, "the number of key heads of stack is 0");
  half = m;
  half.head_width = 4;
  expect_error([&] { check(half); }, "which do not divide them");
}

TEST(PlanStep, ConvertsParametersAndAddsGradients) {
  const Model m = stack_of_layers();
  Layout l;
  l.micro_batch = 4;  // 3 micro-batches
  const Machine machine = machine_of("h100", "ib400");
  const auto bytes = [&](const Precision& a, const Precision& b) {
    const double seconds = step_of(m, l, a, machine).compute - step_of(m, l, b, machine).compute;
    return seconds * machine.gpu.bandwidth * machine.gpu.stream / m.parameters();
  };
  const Precision sixteen{.parameter = 2, .gradient = 2, .optimizer = 0, .activation = 2};
  const Precision summed{.parameter = 2, .gradient = 4, .optimizer = 12, .activation = 2};
  const Precision autocast{.parameter = 4, .gradient = 4, .optimizer = 8, .activation = 2};
  // The first gradients are converted, the others added to 4 bytes in place of 2.
  EXPECT_NEAR(bytes(summed, sixteen), (2 + 4) + 2 * 4, 1e-6);
  EXPECT_NEAR(bytes(autocast, summed), 3 * (4 + 2), 1e-6);
  // Gradients and state are read, state and parameters written; float32 parameters without a copy
  // are read, too.
  EXPECT_EQ(summed.updated(), 4 + 2 * 12 + 2);
  EXPECT_EQ(autocast.updated(), 4 + 2 * 8 + 2 * 4);
}

TEST(PlanStep, FusedLossesHaveNoWholeLogits) {
  Model m = find_model("gpt2");
  m.batch = 4;
  Layout l;
  l.micro_batch = 4;
  const Machine machine = machine_of("h100", "ib400");
  const double logits = 4.0 * number(m.sequence) * number(m.vocabulary);
  const Plan whole = plan_of(m, machine, l);
  m.fused_loss = true;
  const Plan fused = plan_of(m, machine, l);
  const double saved = logits * (36 - 6) / (machine.gpu.bandwidth * machine.gpu.stream);
  EXPECT_NEAR(whole.step.compute - fused.step.compute, saved + 7 * machine.gpu.kernel, 1e-9);
  EXPECT_NEAR(whole.memory.buffers - fused.memory.buffers, logits * 6 * 7 / 8, 1);
}

TEST(PlanStep, StagesOfZeroShardOneMoreThing) {
  const Model m = find_model("llama2-7b");
  Layout l;
  l.data = 64;
  double parameters[4], gradients[4], optimizer[4];
  for (int zero = 0; zero < 4; ++zero) {
    l.zero = zero;
    const Memory memory = memory_of(m, l, {}, machine_of("h100", "ib400").gpu);
    parameters[zero] = memory.parameters;
    gradients[zero] = memory.gradients;
    optimizer[zero] = memory.optimizer;
  }
  EXPECT_NEAR(optimizer[0] / optimizer[1], 64, 1e-6);
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_NEAR(gradients[1] / gradients[2], 64, 1e-6);
  EXPECT_EQ(parameters[0], parameters[2]);
  EXPECT_NEAR(parameters[2] / parameters[3], 64, 1e-6);
}

// ---- mistakes ----

TEST(PlanMistakes, AreExplained) {
  const Machine machine = machine_of("h100", "ib400");
  const auto with = [&](const std::function<void(Wanted&)>& change) {
    Wanted wanted;
    wanted.gpus = 64;
    change(wanted);
    return search(find_model("llama2-7b"), machine, wanted);
  };
  expect_error([] { find_model("gpt5"); }, "gpt3-175b");
  expect_error([] { machine_of("tpu", "ib400"); }, "h200");
  expect_error([] { machine_of("h100", "modem"); }, "ib400");
  expect_error([&] { with([](Wanted& w) { w.gpus = 0; }); }, "0 GPUs: give 1 to 1048576");
  expect_error([&] { with([](Wanted& w) { w.gpus = -7; }); }, "-7 GPUs");
  expect_error([&] { with([](Wanted& w) { w.gpus = INT64_MAX; }); }, "give 1 to 1048576");
  expect_error([&] { with([](Wanted& w) { w.tensor = 0; }); }, "tp is 0");
  expect_error([&] { with([](Wanted& w) { w.expert = INT64_MIN; }); },
               "ep is -9223372036854775808");
  expect_error([&] { with([](Wanted& w) { w.zero = 4; }); }, "ZeRO stage 4");
  expect_error([&] { with([](Wanted& w) { w.tensor = 3; }); }, "must multiply to them");
  expect_error([&] { with([](Wanted& w) { w.data = 64, w.tensor = 2; }); },
               "must multiply to them");
  Model m = find_model("llama2-7b");
  m.batch = 0;
  expect_error([&] { search(m, machine, {.gpus = 8}); }, "the batch of llama2-7b is 0");
  m.batch = INT64_MAX;
  expect_error([&] { search(m, machine, {.gpus = 8}); }, "give 1 to 2^32");
  // The largest machine ends in time.
  for (const Plan& plan : with([](Wanted& w) { w.gpus = int64_t{1} << 20; }).plans) {
    ASSERT_EQ(plan.layout.gpus(), int64_t{1} << 20);
  }
  const Found refused = with([](Wanted& w) { w.pipeline = 64; });
  EXPECT_EQ(refused.tried, 0);
  EXPECT_EQ(refused.refused.begin()->first, "pp does not divide the layers");
}

}  // namespace
}  // namespace mytorch::plan
