// Random numbers. A number depends only on the generator's seed and call number and on the
// element's row-major index, never on strides, threads or the backend.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <tuple>
#include <vector>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/amin.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/dropout.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/isfinite.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/minimum.h"
#include "mytorch/ops/native_dropout.h"
#include "mytorch/ops/native_dropout_backward.h"
#include "mytorch/ops/normal_.h"
#include "mytorch/ops/ones_like.h"
#include "mytorch/ops/rand.h"
#include "mytorch/ops/rand_like.h"
#include "mytorch/ops/randint.h"
#include "mytorch/ops/random_.h"
#include "mytorch/ops/searchsorted.h"
#include "mytorch/ops/sort.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/topk.h"
#include "mytorch/ops/uniform_.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/check_values.h"
#include "ops/creation.h"
#include "ops/gradients.h"

namespace mytorch {
namespace {

void check_drawable(const Tensor& tensor, const char* op) {
  check_type(tensor.is_floating_point(), op, "draws real numbers, which ", tensor.dtype(),
             " does not hold");
}

void check_probability(double p, const char* op) {
  check_value(p >= 0 && p <= 1, op, "p is ", p, ": give one in [0, 1]");
}

void check_probabilities(const Tensor& p, const char* op) {
  if (!may_check_values(p)) return;
  const Tensor values = p.detach();
  const double least = mytorch::amin(values).item<double>();
  const double greatest = mytorch::amax(values).item<double>();
  check_value(least >= 0 && greatest <= 1, op, "the probabilities are from ", least, " to ",
              greatest, ": give some in [0, 1]");
}

void check_deviations(const Tensor& std) {
  if (!may_check_values(std)) return;
  const double least = mytorch::amin(std.detach()).item<double>();
  check_value(least >= 0, "normal", "std has the value ", least, ": give at least 0");
}

struct Range {
  int64_t low;
  int64_t high;
};

// Returns the range of consecutive integers that a type represents.
Range integers_of(ScalarType type) {
  if (type == kBool) return {0, 1};
  if (type == kUInt8) return {0, 255};
  if (is_floating_point(type)) {
    const int digits = type == kFloat16 ? 11 : type == kBFloat16 ? 8 : type == kFloat32 ? 24 : 53;
    return {-(int64_t{1} << digits), int64_t{1} << digits};
  }
  const int64_t high = std::numeric_limits<int64_t>::max() >> (64 - 8 * element_size(type));
  return {-high - 1, high};
}

// Returns the largest finite number of a type, for a complex one of its parts. Of integers, the
// largest that float32 has.
double largest_of(ScalarType type) {
  switch (to_real(type)) {
    case kFloat16:
      return 65504;
    case kBFloat16:
      return 0x1.fep127;
    case kFloat32:
      return std::numeric_limits<float>::max();
    case kFloat64:
      return std::numeric_limits<double>::max();
    case kInt32:
      return 0x1.fffffep30;
    case kInt64:
      return 0x1.fffffep62;
    default:
      return static_cast<double>(integers_of(type).high);
  }
}

// Returns a tensor in the shape of `like`, true where the element's uniform number is below `p`.
Tensor draw_below(const Operand& p, const Tensor& like, ScalarType type,
                  const std::optional<Generator>& generator) {
  // In the layout of `like`, as from a fused kernel.
  Tensor drawn = new_like(like, type, like.device());
  drawn.uniform_(0, 1, generator);
  return drawn < p;
}

ScalarType uniform_type(ScalarType type) { return type == kFloat64 ? kFloat64 : kFloat32; }

// Returns numbers, uniform in [0, 1), in the layout of `like`.
Tensor draw(const Tensor& like, const std::optional<Generator>& generator) {
  Tensor drawn = new_like(like, uniform_type(like.dtype()), like.device());
  drawn.uniform_(0, 1, generator);
  return drawn;
}

// Returns half of the smallest positive number that is drawn, which stands for 0 where that has no
// density.
double least_draw(ScalarType type) { return type == kFloat64 ? 0x1p-54 : 0x1p-25; }

// Returns the generator before it took its last call number.
Generator before_last_call(const std::optional<Generator>& generator) {
  const Generator& used = generator.has_value() ? *generator : default_generator();
  Generator replay(used.seed());
  replay.set_call(used.call() - 1);
  return replay;
}

}  // namespace

namespace shape {

void uniform_(const Tensor& self, double from, double to, std::optional<Generator>) {
  if (!self.is_complex()) check_drawable(self, "uniform_");
  check_value(from <= to && std::isfinite(to - from), "uniform_", "from ", from, " to ", to,
              " is no finite interval");
  const double most = largest_of(self.dtype());
  const double span = largest_of(to_real(self.dtype()) == kFloat64 ? kFloat64 : kFloat32);
  check_value(std::abs(from) <= most && std::abs(to) <= most && to - from <= span, "uniform_",
              "from ", from, " to ", to, " is beyond the range of ", self.dtype(),
              ": give an interval within ", most, " whose length is at most ", span);
}

void normal_(const Tensor& self, double, double std, std::optional<Generator>) {
  if (!self.is_complex()) check_drawable(self, "normal_");
  check_value(std >= 0, "normal_", "std is ", std, ": give at least 0");
}

void random_(const Tensor& self, int64_t from, std::optional<int64_t> to,
             std::optional<Generator>) {
  check_type(!self.is_complex(), "random_", self.dtype(),
             " has no order from which to draw: draw real numbers, and give them to complex()");
  const Range range = integers_of(self.dtype());
  if (to.has_value()) {
    check_value(from < *to, "random_", "no integer is at least ", from, " and below ", *to);
  }
  const int64_t last = to.has_value() ? *to - 1 : range.high;
  check_value(from >= range.low && from <= range.high && last <= range.high, "random_",
              self.dtype(), " holds the integers from ", range.low, " to ", range.high,
              ", not all from ", from, " to ", last);
}

Specs<2> native_dropout(const Tensor& input, double p, std::optional<bool>,
                        std::optional<Generator>) {
  check_probability(p, "native_dropout");
  check_drawable(input, "native_dropout");
  TensorSpec output = like(input);
  if (!input.is_contiguous()) output.strides = packed_like(input.sizes(), input.strides());
  TensorSpec mask = output;
  mask.dtype = kBool;
  return {output, mask};
}

}  // namespace shape

namespace composite {

Tensor normal_tensor_tensor(const Tensor& mean, const Tensor& std,
                            std::optional<Generator> generator) {
  check_type(mean.is_floating_point() && std.is_floating_point(), "normal", "mean is ",
             mean.dtype(), " and std is ", std.dtype(), ": give floating types");
  check_deviations(std);
  const Tensor sum = mean.detach() + std.detach();  // of the common shape and type
  const Tensor drawn = mytorch::empty(sum.sizes(), sum.dtype(), sum.device());
  drawn.normal_(0, 1, generator);
  return drawn * std.detach() + mean.detach();
}

Tensor normal_tensor_float(const Tensor& mean, double std, std::optional<Generator> generator) {
  check_drawable(mean, "normal");
  const Tensor drawn = mytorch::empty(mean.sizes(), mean.dtype(), mean.device());
  return drawn.normal_(0, std, generator) + mean.detach();
}

Tensor normal_float_tensor(double mean, const Tensor& std, std::optional<Generator> generator) {
  check_drawable(std, "normal");
  check_deviations(std);
  const Tensor drawn = mytorch::empty(std.sizes(), std.dtype(), std.device());
  return drawn.normal_(0, 1, generator) * std.detach() + mean;
}

Tensor randint_like_low(const Tensor& self, int64_t low, int64_t high,
                        std::optional<ScalarType> dtype, std::optional<Device> device,
                        std::optional<Generator> generator) {
  return mytorch::randint(low, high, self.sizes(), dtype.value_or(self.dtype()),
                          device.value_or(self.device()), generator);
}

Tensor randint_like(const Tensor& self, int64_t high, std::optional<ScalarType> dtype,
                    std::optional<Device> device, std::optional<Generator> generator) {
  return randint_like_low(self, 0, high, dtype, device, generator);
}

Tensor randint_low(int64_t low, int64_t high, IntList size, std::optional<ScalarType> dtype,
                   std::optional<Device> device, std::optional<Generator> generator) {
  check_value(low < high, "randint", "no integer is at least ", low, " and below ", high);
  Tensor out = mytorch::empty(size, dtype.value_or(kInt64), device);
  out.random_(low, high, generator);
  return out;
}

Tensor randperm(int64_t n, std::optional<ScalarType> dtype, std::optional<Device> device,
                std::optional<Generator> generator) {
  const ScalarType type = dtype.value_or(kInt64);
  check_shape(n >= 0, "randperm", "n is ", n, ": give at least 0");
  check_type(!is_complex(type), "randperm", type,
             " has no order: draw integers, and convert them with to()");
  check_type(n <= 0 || n - 1 <= integers_of(type).high, "randperm", type,
             " does not hold every integer below ", n);
  // Equal 63-bit keys are rarer than memory errors; a stable sort keeps their order.
  Tensor keys = mytorch::empty(n, kInt64, device);
  keys.random_(0, std::nullopt, generator);
  return to(std::get<1>(mytorch::sort(keys, true, 0, false)), type);
}

Tensor bernoulli(const Tensor& self, std::optional<Generator> generator) {
  check_drawable(self, "bernoulli");
  check_probabilities(self, "bernoulli");
  return to(draw_below(self, self, uniform_type(self.dtype()), generator), self.dtype());
}

Tensor bernoulli_p(const Tensor& self, double p, std::optional<Generator> generator) {
  check_probability(p, "bernoulli");
  return to(draw_below(p, self, uniform_type(self.dtype()), generator), self.dtype());
}

void bernoulli_float_(const Tensor& self, double p, std::optional<Generator> generator) {
  check_probability(p, "bernoulli_");
  copy_(self, draw_below(p, self, uniform_type(self.dtype()), generator));
}

void bernoulli_tensor_(const Tensor& self, const Tensor& p, std::optional<Generator> generator) {
  check_drawable(p, "bernoulli_");
  check_probabilities(p, "bernoulli_");
  copy_(self, draw_below(p, self, uniform_type(p.dtype()), generator));
}

void cauchy_(const Tensor& self, double median, double sigma, std::optional<Generator> generator) {
  check_floating(self, "self", "cauchy_");
  check_value(sigma > 0, "cauchy_", "sigma is ", sigma, ": it must be positive");
  // tan(pi * (u - 0.5)), accurate at both poles, which are not drawn.
  const Tensor u = draw(self, generator);
  const Tensor nearest = mytorch::where(u < 0.5, u, 1 - u).clamp_min(least_draw(self.dtype()));
  const Tensor cotangent = (nearest * std::numbers::pi).tan().reciprocal();
  copy_(self, mytorch::where(u < 0.5, -cotangent, cotangent) * sigma + median);
}

void exponential_(const Tensor& self, double lambd, std::optional<Generator> generator) {
  check_floating(self, "self", "exponential_");
  check_value(lambd > 0, "exponential_", "lambd is ", lambd, ": it must be positive");
  const Tensor standard = draw(self, generator).neg().log1p().neg();
  copy_(self, standard.clamp_min(least_draw(self.dtype())) / lambd);
}

void geometric_(const Tensor& self, double p, std::optional<Generator> generator) {
  check_type(self.dtype() != kBool, "geometric_", "self is bool: give a type of numbers");
  check_value(p > 0 && p <= 1, "geometric_", "p is ", p, ": it must be in (0, 1]");
  const Tensor trials = draw(self, generator).neg().log1p() / std::log1p(-p);
  copy_(self, (trials.floor() + 1).clamp_max(largest_of(self.dtype())));
}

void log_normal_(const Tensor& self, double mean, double std, std::optional<Generator> generator) {
  check_floating(self, "self", "log_normal_");
  check_value(std > 0, "log_normal_", "std is ", std, ": it must be positive");
  Tensor normal = new_like(self, uniform_type(self.dtype()), self.device());
  normal.normal_(mean, std, generator);
  copy_(self, normal.exp());
}

Tensor dropout(const Tensor& input, double p, bool train, std::optional<Generator> generator) {
  check_probability(p, "dropout");
  if (!train || p == 0 || input.numel() == 0) return input;
  if (p == 1) return input * 0;  // NaN for NaN and infinities, as for every dropped element
  if (input.is_complex()) {      // both parts are kept or dropped together
    const Tensor ones = mytorch::ones_like(input.detach(), to_real(input.dtype()));
    return input * std::get<0>(mytorch::native_dropout(ones, p, true, generator));
  }
  return std::get<0>(mytorch::native_dropout(input, p, true, generator));
}

Tensors<2> native_dropout(const Tensor& input, double p, std::optional<bool> train,
                          std::optional<Generator> generator) {
  if (!train.value_or(true)) return {input.clone(), ones_like(input, kBool)};
  if (p == 1) return {input * 0, zeros_like(input, kBool)};
  // This call has already taken a call number for the kernel. Reusing it gives the same mask with
  // and without a kernel.
  Tensor mask = draw_below(1 - p, input, kFloat32, before_last_call(generator));
  Tensor output = native_dropout_backward(input, mask, grads::dropout_scale(p, train));
  return {std::move(output), std::move(mask)};
}

Tensor multinomial(const Tensor& self, int64_t num_samples, bool replacement,
                   std::optional<Generator> generator) {
  const char* op = "multinomial";
  check_shape(self.dim() == 1 || self.dim() == 2, op, "self has shape ", self.sizes(),
              ": it must be a vector or a matrix of weights");
  check_floating(self, "self", op);
  check_value(num_samples > 0, op, "num_samples is ", num_samples, ": it must be positive");
  const int64_t categories = self.size(-1);
  check_value(categories > 0 && (replacement || num_samples <= categories), op, "cannot draw ",
              num_samples, " of ", categories,
              " categories: give replacement = true, or fewer num_samples");
  const Tensor weights = self.detach().to(self.dtype() == kFloat64 ? kFloat64 : kFloat32);
  const Tensor largest = weights.amax({-1}, true);
  // NaN, which both extrema would be, fails the comparisons, too.
  const Tensor valid = mytorch::logical_and(weights.amin({-1}, true) >= 0, largest < HUGE_VAL);
  const Tensor enough =
      replacement || num_samples == 1 ? largest > 0 : (weights > 0).sum({-1}, true) >= num_samples;
  const Tensor right = mytorch::logical_and(valid, enough);
  check_value(recording_graph() || right.all().item().to<bool>(), op,
              "weights must be finite and not negative, and each row needs ",
              replacement ? int64_t{1} : num_samples, " positive ones");
  // A graph cannot ask: it draws -1, which is no category.
  const auto known = [&](const Tensor& draws) {
    return recording_graph() ? mytorch::where(right, draws, -1) : draws;
  };
  if (!replacement || num_samples == 1) {
    // The largest of w / E, E exponentially distributed, are distributed like draws without
    // replacement (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).
    const double smallest = weights.dtype() == kFloat64 ? 1e-300 : 1e-37;
    const Tensor uniform = mytorch::rand_like(weights, {}, {}, generator);
    const Tensor draws = weights / uniform.neg().log1p().neg().clamp_min(smallest);
    // Overflow to infinity must not tie with other draws.
    return known(std::get<1>(mytorch::topk(mytorch::log(draws), num_samples, -1)));
  }
  // The weights as integers: sums of these are exact, so that all devices draw the same, and a
  // weight of 0 adds nothing. Those of all categories stay below 2^62.
  const int bits = 62 - std::bit_width(static_cast<uint64_t>(categories));
  const auto drawn = [&](const Tensor& rows, const Tensor& most, const Tensor& uniform) {
    const Tensor shares = rows / most.to(kFloat64);
    const Tensor ends = (shares * std::ldexp(1.0, bits)).to(kInt64).cumsum(-1);
    const Tensor total = ends.narrow(-1, categories - 1, 1);
    // A product that is rounded up must not reach the end.
    const Tensor places = mytorch::minimum((uniform * total).to(kInt64), total - 1);
    return mytorch::searchsorted(ends, places, false, true);
  };
  Dims sizes(weights.sizes().begin(), weights.sizes().end());
  sizes.back() = num_samples;
  const Tensor uniform = mytorch::rand(as_list(sizes), kFloat64, weights.device(), generator);
  // So many rows at a time that the sums stay in the cache.
  constexpr int64_t kBlock = int64_t{1} << 18;
  const int64_t rows = weights.dim() == 1 ? 1 : weights.size(0);
  const int64_t some = std::max<int64_t>(kBlock / categories, 1);
  if (rows <= some) return known(drawn(weights, largest, uniform));
  std::vector<Tensor> parts;
  for (int64_t first = 0; first < rows; first += some) {
    const int64_t count = std::min(some, rows - first);
    parts.push_back(drawn(weights.narrow(0, first, count), largest.narrow(0, first, count),
                          uniform.narrow(0, first, count)));
  }
  return known(mytorch::cat(parts, 0));
}

}  // namespace composite

double grads::dropout_scale(double p, std::optional<bool> train) {
  if (!train.value_or(true)) return 1;
  return p == 1 ? 0 : 1 / (1 - p);
}

}  // namespace mytorch
