// Machines that are fitted to points, and files of points and machines.
#include "plan/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "plan/model.h"
#include "tests/plan/mistakes.h"

namespace mytorch::plan {
namespace {

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
  // Curves say what was measured; without them, the fitted links say nearly the same.
  Machine formulas = fitted;
  formulas.curves.clear();
  EXPECT_EQ(fitted.curves.size(), 4);
  for (const Point& p : points) {
    EXPECT_NEAR(predicted_seconds(formulas, p) / p.seconds, 1, 0.02) << p.kind;
  }
}

TEST(PlanCalibration, FindsWhatLaunchesAndStepsTake) {
  Machine real = machine_of("h200", "ib400");
  real.gpu.kernel = 1.3e-6;
  real.gpu.host = 7e-6;
  real.gpu.step = 0.2e-3;
  real.gpu.single = 40e12;
  real.gpu.stream = 0.9;
  std::vector<Point> points = {
      {"kernels", 0, {200}}, {"host", 0, {300}}, {"step", 0, {}}, {"copy", 0, {1e9}}};
  Point single{"matmul", 0, {4096, 4096, 4096}};
  single.single = true;
  points.push_back(single);
  for (Point& p : points) p.seconds = predicted_seconds(real, p);
  const Machine fitted = calibrated(machine_of("h200", "ib400"), points);
  EXPECT_NEAR(fitted.gpu.kernel / real.gpu.kernel, 1, 1e-3);
  EXPECT_NEAR(fitted.gpu.host / real.gpu.host, 1, 1e-3);
  EXPECT_NEAR(fitted.gpu.step / real.gpu.step, 1, 1e-3);
  EXPECT_NEAR(fitted.gpu.single / real.gpu.single, 1, 1e-2);
  EXPECT_NEAR(fitted.gpu.stream / real.gpu.stream, 1, 1e-3);
  EXPECT_EQ(fitted.gpu.matmul, real.gpu.matmul);
}

TEST(PlanCalibration, CurvesAreLinesBetweenPoints) {
  const Curve curve{"all_reduce", {2, 1}, {{100, 1}, {200, 3}, {1000, 5}}};
  EXPECT_EQ(curve.seconds(1), 1);
  EXPECT_EQ(curve.seconds(100), 1);
  EXPECT_EQ(curve.seconds(150), 2);
  EXPECT_EQ(curve.seconds(200), 3);
  EXPECT_EQ(curve.seconds(600), 4);
  EXPECT_EQ(curve.seconds(3000), 15);
  Machine m = machine_of("h100", "ib400");
  const double other = all_gather_seconds(m, {2, 1}, 150), far = all_reduce_seconds(m, {2, 8}, 150);
  m.curves = {curve};
  EXPECT_EQ(all_reduce_seconds(m, {2, 1}, 150), 2);
  EXPECT_EQ(all_gather_seconds(m, {2, 1}, 150), other);
  EXPECT_EQ(all_reduce_seconds(m, {2, 8}, 150), far);
}

TEST(PlanCalibration, CurvesAreMeansOfPointsAndReplaceOlderOnes) {
  Machine m = machine_of("h100", "ib400");
  m.curves = {{"all_reduce", {2, 1}, {{8, 1}}}, {"broadcast", {2, 1}, {{8, 7}}}};
  std::vector<Point> points;
  for (const auto& [bytes, seconds] : {std::pair{64.0, 5.0}, std::pair{8.0, 2.0}, {64.0, 3.0}}) {
    Point p{"all_reduce", seconds, {bytes}};
    p.ranks.size = 2;
    points.push_back(p);
  }
  const Machine fitted = calibrated(m, points);
  ASSERT_EQ(fitted.curves.size(), 2);
  EXPECT_EQ(fitted.curves[0].times, (std::vector<std::pair<double, double>>{{8, 2}, {64, 4}}));
  EXPECT_EQ(fitted.curves[1].collective, "broadcast");
}

TEST(PlanCalibration, PointsAreWrittenAsTheyAreRead) {
  std::vector<Point> points = {{"matmul", 1e-3, {3, 4, 5}},
                               {"matmul", 2e-3, {3, 4, 5}},
                               {"attention", 3e-3, {1, 2, 3, 4}, true, false},
                               {"attention", 4e-3, {1, 2, 3, 4}, false, true},
                               {"copy", 5e-3, {6}},
                               {"kernels", 6e-3, {7}},
                               {"host", 7e-3, {8}},
                               {"step", 8e-3, {}}};
  points[1].single = true;
  for (const std::string& name : collective_names()) {
    points.push_back({name, 9e-3, {1 << 20}, false, false, {4, 2}});
  }
  const File file(points_text(points));
  const std::vector<Point> read = read_points(file.path);
  ASSERT_EQ(read.size(), points.size());
  for (size_t i = 0; i < read.size(); ++i) {
    const Point &a = points[i], &b = read[i];
    EXPECT_EQ(a.kind, b.kind);
    EXPECT_EQ(a.seconds, b.seconds);
    for (int k = 0; k < 4; ++k) EXPECT_EQ(a.sizes[k], b.sizes[k]) << a.kind;
    EXPECT_EQ(a.causal, b.causal);
    EXPECT_EQ(a.backward, b.backward);
    EXPECT_EQ(a.single, b.single);
    EXPECT_EQ(a.ranks, b.ranks);
  }
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
  Machine fitted = calibrated(machine_of("h200", "ib400"), read);
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
      {R"({"node": {"gpus": 2.5}})", "whole number"},
      {R"({"curves": {}})", "curves is no array"},
      {R"({"curves": [3]})", "curve 0 is no object"},
      {R"({"curves": [{"collective": "gather", "ranks": 2, "stride": 1, "bytes": [8], "seconds": [1]}]})",
       "give one of all_gather"},
      {R"({"curves": [{"collective": "all_reduce", "ranks": 2, "stride": 1, "bytes": [8], "seconds": []}]})",
       "1 bytes and 0 seconds"},
      {R"({"curves": [{"collective": "all_reduce", "ranks": 2, "stride": 1, "bytes": [8, 8], "seconds": [1, 1]}]})",
       "not in ascending order"},
      {R"({"curves": [{"collective": "all_reduce", "ranks": 2, "stride": 1, "bytes": [8], "seconds": [-1]}]})",
       "seconds is -1"},
      {R"({"curves": [{"collective": "all_reduce", "ranks": 2, "stride": 1, "bytes": 8, "seconds": [1]}]})",
       "no array bytes"},
      {R"({"curves": [{"collective": "all_reduce", "rank": 2}]})", "unknown key 'rank'"}};
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
      {R"([{"kind": "copy", "byte": 1, "bytes": 1, "seconds": 1}])", "unknown key 'byte'"},
      {R"([{"kind": "matmul", "m": 1, "n": 1, "k": 1, "dtype": "int8", "seconds": 1}])",
       "the dtype is 'int8'"},
      {R"([{"kind": "host", "seconds": 1}])", "has no count"},
      {R"([{"kind": "step", "seconds": 0}])", "seconds is 0"},
      {R"([{"kind": "attention", "batch": 1, "heads": 1, "length": 1, "width": 1, "causal": 1, "seconds": 1}])",
       "true or false"}};
  for (const auto& [text, part] : points) {
    const File file(text);
    expect_error([&] { read_points(file.path); }, part);
  }
}

TEST(PlanMistakes, InDeepListsAreNamed) {
  const size_t depth = 100000;
  const std::string deep = std::string(depth, '[') + std::string(depth, ']');
  const File config(R"({"n_layer": )" + deep + "}");
  expect_error([&] { find_model(config.path); }, "n_layer is an array: it must be an integer");
  const File machine(R"({"gpu": {"teraflops": )" + deep + "}}");
  expect_error([&] { read_machine(machine.path); }, "teraflops is an array: give a positive");
  const File curve(
      R"({"curves": [{"collective": "all_reduce", "ranks": 2, "stride": 1, "bytes": )" + deep +
      R"(, "seconds": [1]}]})");
  expect_error([&] { read_machine(curve.path); }, "bytes is an array: give a positive");
  const std::string attention =
      R"([{"kind": "attention", "batch": 1, "heads": 1, "length": 1, "width": 1, "seconds": 1, )";
  const File point(attention + R"("causal": )" + deep + "}]");
  expect_error([&] { read_points(point.path); }, "causal is an array: give true or false");
}

}  // namespace
}  // namespace mytorch::plan
