#include "plan/search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "mytorch/error.h"
#include "plan/calibrate.h"
#include "plan/published.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::plan {
namespace {

void expect_error(const std::function<void()>& call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "no error with \"" << part << "\"";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

Found found_for(const char* model, int64_t gpus, const char* gpu = "h100",
                const char* network = "ib400") {
  Wanted wanted;
  wanted.gpus = gpus;
  return search(find_model(model), machine_of(gpu, network), wanted);
}

// A file that is gone with the test.
struct File {
  testing::TempDirectory directory;
  std::string path = directory.file("measured.json");
  explicit File(const std::string& text) { std::ofstream(path) << text; }
};

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
  EXPECT_NEAR(all_to_all_seconds(m, {16, 1}, 16e9), 8e9 / 10e9 + 10e-6, 1e-9);
  EXPECT_LT(message_seconds(m, {2, 4}, 1e9), message_seconds(m, {2, 8}, 1e9));
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

// ---- calibration and machine files ----

TEST(PlanCalibration, FindsTheMachineThatPointsComeFrom) {
  Machine real = machine_of("h200", "ib400");
  real.gpu.matmul = 0.5;
  real.gpu.matmul_half = 400;
  real.gpu.attention_forward = 0.4;
  real.gpu.attention_half = 700;
  real.inner.efficiency = 0.6;
  real.outer.latency = 30e-6;
  std::vector<Point> points;
  const auto add = [&](Point p) {
    p.seconds = predicted_seconds(real, p);
    points.push_back(p);
  };
  for (const double n : {512, 1024, 4096, 8192}) {
    add({"matmul", 0, {n, 4096, 2 * n}});
    add({"attention", 0, {8, 16, n, 128}, true, false});
    add({"attention", 0, {8, 16, n, 128}, true, true});
    for (const int64_t stride : {1, 8}) {
      add({"all_gather", 0, {n * n * 16}, false, false, {8, stride}});
      add({"all_reduce", 0, {n * 8}, false, false, {8, stride}});
    }
  }
  const Machine fitted = calibrated(machine_of("h200", "ib400"), points);
  for (const Point& p : points) {
    EXPECT_NEAR(predicted_seconds(fitted, p) / p.seconds, 1, 0.02) << p.kind << " " << p.sizes[0];
  }
  EXPECT_EQ(fitted.gpu.stream, real.gpu.stream);  // no point depends on it alone
}

TEST(PlanCalibration, ReadsPointsAndMachines) {
  const File points(
      R"([{"kind": "matmul", "m": 4096, "n": 4096, "k": 4096, "seconds": 2.1e-4},
          {"kind": "attention", "batch": 8, "heads": 16, "length": 4096, "width": 128,
           "causal": true, "seconds": 9.57e-4},
          {"kind": "copy", "bytes": 1e9, "seconds": 2.5e-4},
          {"kind": "all_reduce", "ranks": 2, "bytes": 268435456, "seconds": 8.94e-4}])");
  const std::vector<Point> read = read_points(points.path);
  ASSERT_EQ(read.size(), 4);
  EXPECT_TRUE(read[1].causal);
  EXPECT_EQ(read[3].ranks.size, 2);
  const Machine fitted = calibrated(machine_of("h200", "ib400"), read);
  for (const Point& p : read)
    EXPECT_NEAR(predicted_seconds(fitted, p) / p.seconds, 1, 0.01) << p.kind;
  const File machine(machine_text(fitted));
  const Machine back = read_machine(machine.path);
  EXPECT_EQ(machine_text(back), machine_text(fitted));
  for (const Point& p : read) {
    EXPECT_NEAR(predicted_seconds(back, p) / predicted_seconds(fitted, p), 1, 1e-9);
  }
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

TEST(PlanMistakes, InFilesAreNamed) {
  expect_error([] { find_model("/nowhere/config.json"); }, "cannot read");
  expect_error([] { read_machine("/nowhere.json"); }, "cannot read");
  const std::pair<const char*, const char*> configs[] = {
      {"{", "no JSON"},
      {"[1]", "no JSON object"},
      {"{}", "no num_hidden_layers"},
      {R"({"n_layer": "two", "n_embd": 8})", "must be an integer"},
      {R"({"n_layer": 2, "n_embd": 8, "n_head": 0, "vocab_size": 4, "n_positions": 4})",
       "the number of heads"},
      {R"({"n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": -1, "n_positions": 4})",
       "the vocabulary"},
      {R"({"n_layer": 2, "n_embd": 8, "n_head": 3, "num_key_value_heads": 2, "vocab_size": 5, "n_positions": 4})",
       "do not divide"}};
  for (const auto& [text, part] : configs) {
    const File file(text);
    expect_error([&] { find_model(file.path); }, part);
  }
  const std::pair<const char*, const char*> machines[] = {
      {"[]", "no JSON object"},
      {R"({"gpus": {}})", "unknown section 'gpus'"},
      {R"({"gpu": 3})", "unknown section 'gpu'"},
      {R"({"gpu": {"tflops": 3}})", "unknown key 'tflops'"},
      {R"({"gpu": {"teraflops": -3}})", "teraflops is -3"},
      {R"({"gpu": {"teraflops": "many"}})", "give a positive number"},
      {R"({"gpu": {"matmul": 1.5}})", "at most 1"},
      {R"({"node": {"gpus": 2.5}})", "whole number"}};
  for (const auto& [text, part] : machines) {
    const File file(text);
    expect_error([&] { read_machine(file.path); }, part);
  }
  const std::pair<const char*, const char*> points[] = {
      {"{}", "no array"},
      {"[]", "no array"},
      {"[3]", "point 0 has no seconds"},
      {R"([{"kind": "matmul", "m": 1, "n": 1, "k": 1, "seconds": 1}, {"kind": "fft", "seconds": 1}])",
       "point 1: the kind is 'fft'"},
      {R"([{"kind": "matmul", "m": 1, "n": 1, "seconds": 1}])", "has no k"},
      {R"([{"kind": "matmul", "m": 1, "n": 1, "k": 0, "seconds": 1}])", "k is 0"},
      {R"([{"kind": "all_reduce", "bytes": 1, "ranks": 1, "seconds": 1}])", "at least 2"},
      {R"([{"kind": "attention", "batch": 1, "heads": 1, "length": 1, "width": 1, "causal": 1, "seconds": 1}])",
       "true or false"}};
  for (const auto& [text, part] : points) {
    const File file(text);
    expect_error([&] { read_points(file.path); }, part);
  }
}

}  // namespace
}  // namespace mytorch::plan
