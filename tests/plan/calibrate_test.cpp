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
