// Random functions of tensors (random_function.h), compiled and not.
//
// MYTORCH_RANDOM_GRAPHS sets their number, MYTORCH_TEST_SEED the first seed, MYTORCH_TEST_DEVICE
// the device.
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "tests/core/random_seed.h"
#include "tests/graph/random_function.h"

namespace mytorch {
namespace {

// How often each rule and pass changed a graph.
using Fired = std::map<std::string, int64_t>;

std::string difference(int call, const char* what, size_t i, const std::string& text) {
  return std::string(what) + " " + std::to_string(i) + " of call " + std::to_string(call) + "\n" +
         text;
}

// Returns what differs between the compiled and the plain function, or "".
std::string compare_exactly(uint64_t seed, int length, Fired* fired) {
  auto compiled = compile(
      [&](const std::vector<Tensor>& x) { return RandomFunction(seed, length, Kind::kAny)(x); },
      {.mode = CompileMode::kExact, .memory_budget = seed % 2 == 0 ? 0. : 1.});
  const std::vector<Tensor> given = arguments_of(seed, dtype_of(seed));
  for (int call = 0; call < 4; ++call) {
    const std::vector<Tensor> own = copies(given), eager = copies(given);
    const std::vector<Tensor> expected = RandomFunction(seed, length, Kind::kAny)(eager);
    const std::vector<Tensor> found = compiled(own);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!same_bits(found[i], expected[i])) return difference(call, "result", i, compiled.text());
    }
    for (size_t i = 0; i < own.size(); ++i) {
      if (!same_bits(own[i], eager[i])) return difference(call, "argument", i, compiled.text());
    }
  }
  for (const auto& [name, count] : compiled.stats().rewritten) (*fired)[name] += count;
  return "";
}

// The same for a function that refers to most of its tensors from outside, which change between
// some of the calls.
std::string compare_outside(uint64_t seed, int length, Fired* /*fired*/) {
  const std::vector<Tensor> given = arguments_of(seed, dtype_of(seed));
  std::vector<Tensor> outside = copies(given), eager = copies(given);
  auto compiled = compile(
      [&](const Tensor& x) {
        return RandomFunction(seed, length, Kind::kAny)({x, outside[1], outside[2]});
      },
      {.mode = CompileMode::kExact});
  std::mt19937_64 draw(seed);
  for (int call = 0; call < 8; ++call) {
    const std::vector<Tensor> expected =
        RandomFunction(seed, length, Kind::kAny)({given[0].clone(), eager[1], eager[2]});
    const std::vector<Tensor> found = compiled(given[0].clone());
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!same_bits(found[i], expected[i])) return difference(call, "result", i, compiled.text());
    }
    for (const size_t i : {1, 2}) {
      if (!same_bits(outside[i], eager[i])) return difference(call, "tensor", i, compiled.text());
      const uint64_t change = draw() % 6;
      if (change == 0) outside[i].neg_(), eager[i].neg_();
      if (change == 1) outside[i].select(0, 0).fill_(2), eager[i].select(0, 0).fill_(2);
      if (change == 2) {
        outside[i].set_data(given[0].clone());
        eager[i].set_data(given[0].clone());
      }
    }
  }
  return "";
}

// The same for a function that reads values that it computes, of arguments with other values in
// each call, so that it goes on in several ways.
std::string compare_breaks(uint64_t seed, int length, Fired* fired) {
  const auto f = [&](const std::vector<Tensor>& x) {
    return RandomFunction(seed, length, Kind::kAny).read_values()(x);
  };
  auto compiled = compile(f, {.mode = CompileMode::kExact, .allow_breaks = true});
  const std::vector<Tensor> given = arguments_of(seed, dtype_of(seed));
  for (int call = 0; call < 8; ++call) {
    std::vector<Tensor> now;
    for (const Tensor& each : given) now.push_back(call % 3 == 1 ? -each : each * (call % 2 + 1));
    const std::vector<Tensor> own = copies(now), eager = copies(now);
    const std::vector<Tensor> expected = f(eager), found = compiled(own);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!same_bits(found[i], expected[i])) return difference(call, "result", i, compiled.text());
    }
    for (size_t i = 0; i < own.size(); ++i) {
      if (!same_bits(own[i], eager[i])) return difference(call, "argument", i, compiled.text());
    }
  }
  (*fired)["breaks"] += static_cast<int64_t>(compiled.stats().breaks.size());
  (*fired)["replayed segments"] += compiled.stats().replayed_segments;
  (*fired)["calls replayed throughout"] += compiled.stats().replayed;
  return "";
}

// The same for a function whose arguments have other sizes in each call. All sizes are far from
// those of other dimensions, with which they would broadcast.
std::string compare_sizes(uint64_t seed, int length, Fired* fired) {
  auto compiled = compile(
      [&](const std::vector<Tensor>& x) { return RandomFunction(seed, length, Kind::kAny)(x); },
      {.mode = CompileMode::kExact, .dynamic_dims = {{0, 0}, {1, 0}, {2, 0}}});
  const int64_t columns = arguments_of(seed, dtype_of(seed))[0].size(1);
  std::mt19937_64 draw(seed);
  for (int call = 0; call < 9; ++call) {
    const int64_t rows = call == 0 ? 40 : call == 1 ? 90 : 40 + static_cast<int64_t>(draw() % 51);
    std::vector<Tensor> given;
    for (uint64_t i = 0; i < 3; ++i) {
      given.push_back(randn({rows, columns}, kFloat32, {}, Generator(seed * 3 + i))
                          .to(dtype_of(seed))
                          .to(test_device()));
    }
    const std::vector<Tensor> own = copies(given), eager = copies(given);
    const std::vector<Tensor> expected = RandomFunction(seed, length, Kind::kAny)(eager);
    const std::vector<Tensor> found = compiled(own);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!same_bits(found[i], expected[i])) return difference(call, "result", i, compiled.text());
    }
    for (size_t i = 0; i < own.size(); ++i) {
      if (!same_bits(own[i], eager[i])) return difference(call, "argument", i, compiled.text());
    }
  }
  (*fired)["recorded"] += compiled.stats().recorded;
  (*fired)["instantiated"] += compiled.stats().instantiated;
  return "";
}

double eps_of(ScalarType dtype) {
  return std::ldexp(1, dtype == kFloat64   ? -52
                       : dtype == kFloat32 ? -23
                       : dtype == kFloat16 ? -10
                                           : -7);
}

// Returns the largest error of each result of `f` in the arguments' type, over neighbors of the
// arguments. One evaluation can be accurate by luck, for instance where a sum cancels.
std::vector<double> errors_nearby(
    const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& f,
    const std::vector<Tensor>& given) {
  std::vector<double> most;
  for (uint64_t k = 0; k < 16; ++k) {
    std::vector<Tensor> near, wide;
    for (const Tensor& x : given) {
      const Tensor step = rand(x.sizes(), kFloat64, {}, Generator(k)).to(x.device()) - 0.5;
      near.push_back((x.to(kFloat64) * (1 + 2 * eps_of(x.dtype()) * step)).to(x.dtype()));
      wide.push_back(near.back().to(kFloat64));
    }
    const std::vector<Tensor> exact = f(wide), found = f(near);
    most.resize(exact.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      const double error = (found[i].to(kFloat64) - exact[i]).abs().max().item<double>();
      most[i] = std::max(most[i], error);
    }
  }
  return most;
}

// Returns what is less accurate in the compiled function than in the plain one, or "".
std::string compare_closely(uint64_t seed, int length, Fired* fired) {
  const auto f = [&](const std::vector<Tensor>& x) {
    return RandomFunction(seed, length, Kind::kSmooth)(x);
  };
  auto compiled = compile(f);
  const std::vector<Tensor> given = arguments_of(seed, dtype_of(seed));
  std::vector<Tensor> wide;
  for (const Tensor& each : given) wide.push_back(each.to(kFloat64));
  const std::vector<Tensor> exact = f(wide);
  for (int call = 0; call < 3; ++call) {
    const std::vector<Tensor> expected = f(copies(given)), found = compiled(copies(given));
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto error = [&](const Tensor& x) {
        return (x.to(kFloat64) - exact[i]).abs().max().item<double>();
      };
      const double scale = exact[i].abs().max().item<double>() + 1;
      const double eps = eps_of(expected[i].dtype());
      const double found_error = error(found[i]), plain_error = error(expected[i]);
      const bool same_type = found[i].dtype() == expected[i].dtype();
      if (same_type && found_error <= 2 * plain_error + 4 * eps * scale) continue;
      const double nearby = errors_nearby(f, given)[i];
      if (!same_type || !(found_error <= 4 * nearby + 4 * eps * scale)) {
        std::printf("errors: %g, without compiling %g, nearby %g\n", found_error, plain_error,
                    nearby);
        return difference(call, "result", i, compiled.text());
      }
    }
  }
  for (const auto& [name, count] : compiled.stats().rewritten) (*fired)[name] += count;
  return "";
}

// Compares functions. `expected` are rules and passes that must have changed some of many.
template <class Compare>
void run_all(Compare compare, int64_t part, const std::vector<std::string>& expected) {
  Fired fired, unused;
  const char* number = std::getenv("MYTORCH_RANDOM_GRAPHS");
  const int64_t count = (number != nullptr ? std::atoll(number) : 600) / part;
  const uint64_t begin = testing::random_seed();
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(begin),
              static_cast<unsigned long long>(begin + static_cast<uint64_t>(count)));
  for (uint64_t seed = begin; seed < begin + static_cast<uint64_t>(count); ++seed) {
    int length = 3 + static_cast<int>(seed % 24);
    std::string what = compare(seed, length, &fired);
    if (what.empty()) continue;
    // The shortest beginning of the function that fails.
    for (int less = 1; less < length; ++less) {
      if (std::string found = compare(seed, less, &unused); !found.empty()) {
        length = less;
        what = found;
        break;
      }
    }
    ADD_FAILURE() << "seed " << seed << ", " << length << " operators: " << what;
    return;
  }
  for (const auto& [name, times] : fired) {
    std::printf("%6lld x %s\n", static_cast<long long>(times), name.c_str());
  }
  if (count < 300) return;
  for (const std::string& name : expected) EXPECT_GT(fired[name], 0) << name << " never fired";
}

TEST(RandomGraphs, ExactGivesTheBitsOfTheFunction) {
  run_all(compare_exactly, 1,
          {"algebra: x * 1", "algebra: x - 0", "algebra: - - x", "algebra: casts", "algebra: views",
           "constant-folding", "view-copies", "recomputation"});
}
TEST(RandomGraphs, TensorsFromOutsideChangeBetweenCalls) { run_all(compare_outside, 2, {}); }
TEST(RandomGraphs, SizesOfDynamicDimsGiveTheBitsOfTheFunction) {
  run_all(compare_sizes, 4, {"instantiated"});
}
TEST(RandomGraphs, BreaksGiveTheBitsOfTheFunction) {
  run_all(compare_breaks, 2, {"breaks", "replayed segments", "calls replayed throughout"});
}
TEST(RandomGraphs, DefaultIsAsAccurateAsTheFunction) {
  run_all(compare_closely, 2,
          {"softmax", "gelu", "silu", "swiglu", "tanh gelu of products", "residual + RMS norm",
           "residual + layer norm", "algebra: x * 1", "constant-folding", "view-copies"});
}

}  // namespace
}  // namespace mytorch
