// What the tests of parallel training share. Failed expectations throw, because GoogleTest's do not
// end a rank's thread.
#pragma once

#include <cmath>
#include <functional>
#include <string>

#include "mytorch/mytorch.h"

namespace mytorch::nn::ranks {

inline void expect(bool holds, const std::string& what) {
  if (!holds) throw Error(ErrorCode::kInternal, what);
}

inline void expect_close(double found, double expected, double tolerance, const std::string& what) {
  expect(std::abs(found - expected) <= tolerance * (1 + std::abs(expected)),
         what + ": " + std::to_string(found) + ", expected " + std::to_string(expected));
}

inline void expect_close(const Tensor& found, const Tensor& expected, double tolerance,
                         const std::string& what) {
  expect(found.defined() && found.sizes() == expected.sizes(), what + ": wrong shape");
  if (found.numel() == 0) return;
  const double far =
      (found.detach().to(kFloat64) - expected.detach().to(kFloat64)).abs().max().item<double>();
  expect(far <= tolerance * (1 + expected.detach().abs().max().item<double>()),
         what + ": differs by " + std::to_string(far));
}

inline void expect_error(const std::function<void()>& call, const std::string& part) {
  try {
    call();
  } catch (const Error& error) {
    expect(std::string(error.what()).find(part) != std::string::npos,
           "the message \"" + std::string(error.what()) + "\" lacks \"" + part + "\"");
    return;
  }
  throw Error(ErrorCode::kInternal, "no error with \"" + part + "\"");
}

// The parameters do not depend on the generator, which threads share.
inline void set_parameters(Module& net, double seed) {
  const NoGradGuard no_grad;
  for (const Tensor& p : net.parameters()) {
    for (int64_t i = 0; i < p.numel(); ++i) {
      p.data<float>()[i] = static_cast<float>(0.4 * std::sin(seed + 1.7 * static_cast<double>(i)));
    }
    seed += 1;
  }
}

// The examples of a batch, over all ranks: they divide it if they are 1, 2, 3, 4 or 6.
constexpr int64_t kBatch = 12;

struct Data {
  Tensor x, y;
};
// Examples [begin, begin + size) of a batch: x (size, width), and y (size) of `classes` classes.
inline Data batch(int64_t step, int64_t begin, int64_t size, int64_t width, int64_t classes) {
  const Tensor x = mytorch::empty({size, width}), y = mytorch::empty({size}, kInt64);
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t k = 0; k < width; ++k) {
      x.data<float>()[i * width + k] =
          static_cast<float>(std::cos(static_cast<double>(step * 31 + (begin + i) * 7 + k * k)));
    }
    y.data<int64_t>()[i] = (begin + i + step) % classes;
  }
  return {x, y};
}

}  // namespace mytorch::nn::ranks
