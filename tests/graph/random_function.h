// Random functions of tensors: elementwise operators of all types, views, in-place writes through
// views, reductions, rows and products, and what passes and rules look for.
#pragma once

#include <random>
#include <vector>

#include "mytorch/mytorch.h"
#include "tests/core/same_bits.h"
#include "tests/graph/device.h"

namespace mytorch {

// How to draw a function: all operators, or only those that are smooth, so that errors of rounding
// stay small.
enum class Kind { kAny, kSmooth };

// Runs the function of a seed. Equal seeds and arguments of equal shapes and types give equal
// sequences of operators.
class RandomFunction {
 public:
  RandomFunction(uint64_t seed, int length, Kind kind)
      : draw_(seed), length_(length), kind_(kind) {}

  std::vector<Tensor> operator()(const std::vector<Tensor>& arguments) {
    pool_ = arguments;
    for (int i = 0; i < length_; ++i) {
      step();
      if (reads_ && i % 4 == 3) branch();
    }
    std::vector<Tensor> results;
    const size_t begin = pool_.size() > 3 ? pool_.size() - 3 : 0;
    for (size_t i = begin; i < pool_.size(); ++i) results.push_back(pool_[i]);
    return results;
  }

  // The host reads values, and goes on by them.
  RandomFunction& read_values() {
    reads_ = true;
    return *this;
  }

 private:
  void branch() {
    const Tensor x = number();
    if (below(4) == 0) return keep(x + nonzero(x > 0).to(kFloat64).sum().to(x.dtype()));
    const double seen = x.to(kFloat64).sum().item<double>();
    keep(seen > 0 ? x * 0.5 : tanh(x));
  }

  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(draw_); }
  const Tensor& any() {
    return pool_[static_cast<size_t>(below(static_cast<int64_t>(pool_.size())))];
  }
  // Returns a floating tensor.
  Tensor number() {
    for (int tries = 0; tries < 8; ++tries) {
      const Tensor& x = any();
      if (x.is_floating_point()) return x;
    }
    return pool_[0];
  }
  // Returns an operand for an operator whose other one is `x`.
  Tensor other(const Tensor& x) {
    for (int tries = 0; tries < 6; ++tries) {
      Tensor y = number();
      if (y.sizes() == x.sizes()) return y;
      if (below(3) == 0 && y.dim() > 0 && x.dim() == y.dim()) {
        y = y.narrow(0, 0, 1);
        if (y.size(-1) == x.size(-1)) return y;
      }
    }
    return x;
  }
  void keep(const Tensor& x) {
    pool_.push_back(x);
    if (pool_.size() > 12) pool_.erase(pool_.begin() + 2 + below(6));
  }

  void step() {
    const int64_t which = below(kind_ == Kind::kAny ? 14 : 8);
    if (which < 2) return keep(unary(number()));
    if (which < 4) return keep(binary());
    if (which < 6) return keep(below(2) == 0 ? for_rules(number()) : for_passes(number()));
    if (kind_ == Kind::kSmooth) return keep(rows());
    switch (which) {
      case 13:
        return keep(rows());
      case 11:
        return keep(convert());
      case 12:
        return keep(choose());
      case 6:
        return keep(view());
      case 7:
      case 8:
        return write();
      case 9:
        return keep(reduce());
      default: {
        const Tensor x = number();
        return keep(x.dim() == 2 ? matmul(x, x.t()) : x * 2);
      }
    }
  }

  Tensor unary(const Tensor& x) {
    const bool smooth = kind_ == Kind::kSmooth;
    switch (below(smooth ? 9 : 16)) {
      case 0:
        return x.neg();
      case 1:
        return tanh(x);
      case 2:
        return sigmoid(x);
      case 3:
        return x * 0.5;
      case 4:
        return x + 1;
      case 5:
        return gelu(x);
      case 6:
        return silu(x);
      case 7:
        return exp(clamp(x, -3, 1));
      case 8:
        return erf(x);
      case 9:
        return relu(x);
      case 10:
        return sqrt(abs(x));
      case 11:
        return floor(x);
      case 12:
        return log1p(abs(x));
      case 13:
        return 1 / x;
      case 14:
        return x.square();
      default:
        return 3 - x;
    }
  }

  // What rules look for. Numbers that float16 does not hold are left to the comparison of accuracy.
  Tensor for_rules(const Tensor& x) {
    switch (below(kind_ == Kind::kSmooth ? 7 : 5)) {
      case 0: {
        if (x.dim() == 0) return x * sigmoid(x);
        const Tensor e = exp(x - x.amax({-1}, true));
        return e / e.sum({-1}, true);
      }
      case 1:
        return x * sigmoid(x);
      case 2:
        return silu(x) * other(x);
      case 3: {
        const Tensor y = other(x);
        if (x.dim() == 0 || y.sizes() != x.sizes()) return x + y;
        return rms_norm(x + y, {x.size(-1)}, {}, 1.0);
      }
      case 4: {
        const Tensor y = other(x);
        if (x.dim() == 0 || y.sizes() != x.sizes()) return x + y;
        // The sum is used again.
        const Tensor sum = x + y;
        return layer_norm(sum, {x.size(-1)}, {}, {}, 1.0) + sum;
      }
      case 5:
        return 0.5 * x * (1 + erf(x * std::sqrt(0.5)));
      default: {
        const Tensor part = 0.5 * x;
        return part * (1 + tanh(std::sqrt(2 / 3.141592653589793) * (x + 0.044715 * (x * x * x))));
      }
    }
  }

  // What other passes look for.
  Tensor for_passes(const Tensor& x) {
    switch (below(8)) {
      case 0:
        return tanh(x * 1) - 0;
      case 1:
        return sigmoid(-(-x));
      case 2:
        return tanh(x.to(kFloat64).to(x.dtype()));
      case 3:
        return sigmoid(x.clone());
      case 4:
        return x.clone();
      case 5:
        return x * (arange(3, TensorOptions(test_device())) * 0.25)[below(3)];
      case 6:
        return x + full({1}, 0.5, TensorOptions(x.dtype()).device(test_device()));
      default:
        return tanh(x.dim() > 1 ? x.transpose(0, 1).transpose(0, 1).expand(x.sizes()) : x) / 1;
    }
  }

  Tensor binary() {
    const Tensor x = number(), y = other(x);
    switch (below(kind_ == Kind::kSmooth ? 4 : 8)) {
      case 0:
        return tanh(x) * y;
      case 1:
        return add(x, y, 0.25);
      case 2:
        return x - y;
      case 3:
        return sigmoid(x) * sigmoid(y);
      case 4:
        return x / y;
      case 5:
        return maximum(x, y);
      case 6:
        return atan2(x, y);
      default:
        return x * y;
    }
  }

  Tensor convert() {
    constexpr ScalarType kTypes[] = {kFloat32, kFloat64, kBFloat16, kFloat16,
                                     kInt64,   kInt32,   kUInt8};
    const ScalarType to = kTypes[below(7)];
    const Tensor& x = any();
    // A value outside of the integers has no defined conversion.
    if (x.is_floating_point() && !is_floating_point(to))
      return clamp(where(isnan(x), 0, x), 0, 100).to(to);
    return x.to(to);
  }

  Tensor choose() {
    const Tensor x = number(), y = other(x);
    switch (below(4)) {
      case 0:
        return where(x > y, x, y);
      case 1:
        return where(logical_and(x > 0, y <= 1), x, 0.5);
      case 2:
        return x * (y != 0);
      default:
        return x >= 0.25;
    }
  }

  Tensor view() {
    const Tensor& x = any();
    switch (below(5)) {
      case 0:
        return x.dim() > 1 ? x.transpose(0, 1) : x;
      case 1:
        return x.dim() > 0 && x.size(0) > 1 ? x.narrow(0, 1, x.size(0) - 1) : x;
      case 2:
        return x.dim() > 1 ? x.select(0, 0) : x;
      case 3:
        return x.unsqueeze(0).expand(twice(x.sizes())).select(0, 1);
      default:
        return x.reshape({-1});
    }
  }

  static std::vector<int64_t> twice(IntList sizes) {
    std::vector<int64_t> found = {2};
    found.insert(found.end(), sizes.begin(), sizes.end());
    return found;
  }

  // Writes a tensor that is not expanded.
  void write() {
    Tensor x = number();
    if (below(2) == 0 && x.dim() > 0 && x.size(0) > 1) x = x.narrow(0, 0, x.size(0) / 2 + 1);
    const Tensor y = below(2) == 0 ? other(x) : x;
    switch (below(6)) {
      case 0:
        x.add_(y, 0.5);
        return;
      case 1:
        x.mul_(0.75);
        return;
      case 2:
        x.copy_(y);
        return;
      case 3:
        x.fill_(0.5);
        return;
      case 4:
        x.clamp_(-2, 2);
        return;
      default:
        x.tanh_();
    }
  }

  // Reductions that do not keep their dimensions, the variance, and elements that an index selects.
  Tensor rows() {
    const Tensor x = number();
    if (x.dim() != 2 || x.numel() == 0) return x * 0.5;
    const int64_t columns = x.size(-1);
    const Tensor first = arange(0, x.size(0), kInt64, x.device());
    const Tensor index = remainder(first * 7 + below(5), columns).unsqueeze(-1);
    switch (below(9)) {
      case 7:
        return tanh(log_softmax(x, -1)) + x;
      case 8:
        return softmax(x * 0.5, -1) * x;
      case 0:
        return x - logsumexp(x, {-1}).unsqueeze(-1);
      case 1:
        return x * (tanh(x).sum({-1}) * 0.125).unsqueeze(-1);
      case 2:
        return (x - x.mean({-1}, true)) * rsqrt(var(x, {-1}, 0, true) + 1);
      case 3:
        return x - x.gather(-1, index);
      case 4:
        return take_along_dim(x, index - columns, -1) * tanh(x);
      case 5:
        return scatter_add(x, -1, index, tanh(x.narrow(-1, 0, 1)));
      default:
        return tanh(index_select(x, 0, remainder(first * 3 + 1, x.size(0)))) - x;
    }
  }

  Tensor reduce() {
    const Tensor x = number();
    if (x.dim() == 0) return x + 1;
    switch (below(4)) {
      case 0:
        return x.sum({-1}, true) * 0.125;
      case 1:
        return x.amax({0}, true);
      case 2:
        return softmax(x, -1);
      default:
        return x - x.mean({-1}, true);
    }
  }

  std::mt19937_64 draw_;
  int length_;
  Kind kind_;
  bool reads_ = false;
  std::vector<Tensor> pool_;
};

inline std::vector<Tensor> arguments_of(uint64_t seed, ScalarType dtype) {
  std::mt19937_64 draw(seed ^ 0x9e3779b97f4a7c15u);
  const auto below = [&](int64_t n) {
    return std::uniform_int_distribution<int64_t>(0, n - 1)(draw);
  };
  const int64_t rows = below(4) == 0 ? 66 : 1 + below(5),
                columns = below(12) == 0 ? 700 : 1 + below(9);
  std::vector<Tensor> arguments;
  for (uint64_t i = 0; i < 3; ++i) {
    arguments.push_back(
        randn({rows, columns}, kFloat32, {}, Generator(seed * 3 + i)).to(dtype).to(test_device()));
  }
  return arguments;
}

inline ScalarType dtype_of(uint64_t seed) {
  constexpr ScalarType kTypes[] = {kFloat32, kFloat32, kBFloat16, kFloat16, kFloat64};
  return kTypes[seed % 5];
}

inline std::vector<Tensor> copies(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> found;
  for (const Tensor& each : tensors) found.push_back(each.clone());
  return found;
}

}  // namespace mytorch
