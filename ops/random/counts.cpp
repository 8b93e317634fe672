// Random counts: Poisson's and the binomial distribution. Like other random numbers, those of an
// element depend only on the generator's seed and call numbers and on the element's index: each
// trial draws for all elements.
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/amin.h"
#include "mytorch/ops/any.h"
#include "mytorch/ops/binomial.h"
#include "mytorch/ops/broadcast_tensors.h"
#include "mytorch/ops/clamp.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/floor.h"
#include "mytorch/ops/full_like.h"
#include "mytorch/ops/lgamma.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/log1p.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/logical_or.h"
#include "mytorch/ops/maximum.h"
#include "mytorch/ops/minimum.h"
#include "mytorch/ops/nonzero.h"
#include "mytorch/ops/poisson.h"
#include "mytorch/ops/rand.h"
#include "mytorch/ops/round.h"
#include "mytorch/ops/special_ndtri.h"
#include "mytorch/ops/sqrt.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/check.h"

namespace mytorch::composite {
namespace {

// Below this mean, counts are found by adding probabilities; above, by rejection.
constexpr double kFew = 10;
// Above this variance, counts are rounded normal numbers. The logarithms of rejection would lose
// their fractions there, and the skewness is below 1e-6.
constexpr double kSmooth = 0x1p40;

bool holds_somewhere(const Tensor& condition) { return mytorch::any(condition).item().to<bool>(); }

// The smallest k whose cumulative probability reaches a uniform number. `none` is the probability
// of 0, and ratio(k) that of k over that of k - 1.
Tensor by_inversion(const Tensor& uniform, const Tensor& none,
                    const std::function<Tensor(double k)>& ratio) {
  Tensor probability = none.clone(), cumulative = none.clone(), count = mytorch::zeros_like(none);
  // With a mean below 10, more than 128 have a probability below 1e-90: only rounding remains.
  for (int k = 1; k <= 128; ++k) {
    const Tensor more = uniform > cumulative;
    if (k % 4 == 1 && !holds_somewhere(more)) break;
    count.add_(more);
    probability.mul_(ratio(k));
    cumulative.add_(probability);
  }
  return count;
}

// Draws pairs (u, v), uniform in [-0.5, 0.5) and [0, 1), until `propose` accepts a count for each
// element. It returns the count, or -1, of the elements at `indices`.
Tensor by_rejection(
    const Tensor& like,
    const std::function<Tensor(const Tensor& indices, const Tensor& u, const Tensor& v)>& propose,
    const std::optional<Generator>& generator) {
  Tensor counts = mytorch::full_like(like, -1);
  Tensor left = mytorch::nonzero(counts < 0).squeeze(1);
  // Each trial accepts more than 0.7 of what is left.
  for (int trial = 0; trial < 64 && left.numel() > 0; ++trial) {
    const Tensor pairs = mytorch::rand({2, like.numel()}, kFloat64, like.device(), generator);
    const Tensor found = propose(left, pairs.select(0, 0).index_select(0, left) - 0.5,
                                 pairs.select(0, 1).index_select(0, left));
    counts.index_copy_(0, left, found);
    left = left.index_select(0, mytorch::nonzero(found < 0).squeeze(1));
  }
  return counts.clamp_min(0);
}

// Of W. Hörmann, "The transformed rejection method for generating Poisson random variables",
// Insurance: Mathematics and Economics 12, 1993 (PTRS).
Tensor many_poisson(const Tensor& rate, const std::optional<Generator>& generator) {
  const Tensor b_of = mytorch::sqrt(rate) * 2.53 + 0.931;
  const auto propose = [&](const Tensor& indices, const Tensor& u, const Tensor& v) {
    const Tensor mean = rate.index_select(0, indices), b = b_of.index_select(0, indices);
    const Tensor a = b * 0.02483 - 0.059;
    const Tensor edge = 0.5 - u.abs();
    const Tensor k = mytorch::floor((a * 2 / edge + b) * u + mean + 0.43);
    const Tensor inside = mytorch::logical_and(edge >= 0.07, v <= 0.9277 - 3.6224 / (b - 2));
    const Tensor scaled = v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (edge * edge) + b);
    const Tensor likely =
        mytorch::log(scaled) <= k * mytorch::log(mean) - mean - mytorch::lgamma(k.clamp_min(0) + 1);
    const Tensor possible =
        mytorch::logical_and(k >= 0, mytorch::logical_or(edge >= 0.013, v <= edge));
    const Tensor taken = mytorch::logical_or(inside, mytorch::logical_and(possible, likely));
    return mytorch::where(mytorch::logical_and(taken, k >= 0), k, -1);
  };
  return by_rejection(rate, propose, generator);
}

// lgamma(k + 1) less Stirling's (k + 0.5) log(k + 1) - (k + 1) + log(2 pi) / 2.
Tensor stirling_rest(const Tensor& k) {
  const Tensor next = (k + 1).reciprocal(), square = next * next;
  const Tensor series = (1.0 / 12 - (1.0 / 360 - square / 1260) * square) * next;
  // The series has few digits below 10.
  const Tensor small = k.clamp_max(10);
  const Tensor exact = mytorch::lgamma(small + 1) - (small + 0.5) * mytorch::log(small + 1) +
                       small + (1 - 0.91893853320467274178);
  return mytorch::where(k < 10, exact, series);
}

// Of W. Hörmann, "The generation of binomial random variates", Journal of Statistical Computation
// and Simulation 46, 1993 (BTRS), for p <= 0.5.
Tensor many_binomial(const Tensor& trials, const Tensor& p,
                     const std::optional<Generator>& generator) {
  const auto propose = [&](const Tensor& indices, const Tensor& u, const Tensor& v) {
    const Tensor n = trials.index_select(0, indices), own = p.index_select(0, indices);
    const Tensor deviation = mytorch::sqrt(n * own * (1 - own));
    const Tensor b = deviation * 2.53 + 1.15;
    const Tensor a = b * 0.0248 - 0.0873 + own * 0.01;
    const Tensor edge = 0.5 - u.abs();
    const Tensor k = mytorch::floor((a * 2 / edge + b) * u + n * own + 0.5);
    const Tensor inside = mytorch::logical_and(edge >= 0.07, v <= 0.92 - 4.2 / b);
    const Tensor scaled = v * ((2.83 + 5.1 / b) * deviation) / (a / (edge * edge) + b);
    const Tensor mode = mytorch::floor((n + 1) * own);
    const Tensor at = mytorch::minimum(k.clamp_min(0), n), odds = own / (1 - own);
    // The logarithm of P(at) / P(mode) by Stirling's series, whose terms stay small: differences of
    // lgamma(n) would lose everything for many trials.
    const Tensor likely =
        mytorch::log(scaled) <= (mode + 0.5) * mytorch::log((mode + 1) / (odds * (n - mode + 1))) +
                                    (n + 1) * mytorch::log1p((at - mode) / (n - at + 1)) +
                                    (at + 0.5) * mytorch::log(odds * (n - at + 1) / (at + 1)) +
                                    stirling_rest(mode) + stirling_rest(n - mode) -
                                    stirling_rest(at) - stirling_rest(n - at);
    const Tensor possible = mytorch::logical_and(k >= 0, k <= n);
    const Tensor taken = mytorch::logical_and(possible, mytorch::logical_or(inside, likely));
    return mytorch::where(taken, k, -1);
  };
  return by_rejection(trials, propose, generator);
}

Tensor smooth(const Tensor& uniform, const Tensor& mean, const Tensor& variance) {
  const Tensor normal = mytorch::special_ndtri(uniform.clamp_min(0x1p-54));
  return mytorch::round(mean + mytorch::sqrt(variance) * normal).clamp_min(0);
}

// Chooses among the ways by mean and variance. A way that no element needs is left out, which does
// not change what the others draw.
Tensor choose(const Tensor& mean, const Tensor& variance,
              const std::function<Tensor(const Tensor& uniform)>& few,
              const std::function<Tensor()>& many, const std::optional<Generator>& generator) {
  const Tensor uniform = mytorch::rand(mean.sizes(), kFloat64, mean.device(), generator);
  const Tensor is_few = mean < kFew;
  const Tensor is_smooth = variance > kSmooth;
  Tensor counts = mytorch::zeros_like(mean);
  if (holds_somewhere(is_few)) counts = few(uniform);
  if (holds_somewhere(is_smooth)) {
    counts = mytorch::where(is_smooth, smooth(uniform, mean, variance), counts);
  }
  const Tensor is_many = mytorch::logical_and(mean >= kFew, variance <= kSmooth);
  if (holds_somewhere(is_many)) counts = mytorch::where(is_many, many(), counts);
  return counts;
}

void check_drawn_type(const Tensor& tensor, const char* name, const char* op) {
  check_type(tensor.is_floating_point(), op, name, " is ", tensor.dtype(),
             ": give a floating type, which the counts have, too");
}

}  // namespace

Tensor poisson(const Tensor& self, std::optional<Generator> generator) {
  check_drawn_type(self, "self", "poisson");
  if (self.numel() == 0) return mytorch::zeros_like(self.detach());
  const Tensor rate = self.detach().to(kFloat64).reshape({-1});
  const double least = mytorch::amin(rate).item<double>();
  check_value(least >= 0, "poisson", "self has the rate ", least, ": give at least 0");
  const auto few = [&](const Tensor& uniform) {
    const Tensor own = mytorch::where(rate < kFew, rate, 0);
    return by_inversion(uniform, mytorch::exp(-own), [&](double k) { return own / k; });
  };
  const auto many = [&] { return many_poisson(rate.clamp(kFew, kSmooth), generator); };
  const Tensor counts = choose(rate, rate, few, many, generator);
  return mytorch::to(mytorch::where(rate < HUGE_VAL, counts, rate), self.dtype())
      .reshape(self.sizes());
}

Tensor binomial(const Tensor& count, const Tensor& prob, std::optional<Generator> generator) {
  const char* op = "binomial";
  check_drawn_type(count, "count", op);
  check_drawn_type(prob, "prob", op);
  const std::vector<Tensor> both = mytorch::broadcast_tensors({count.detach(), prob.detach()});
  if (both[0].numel() == 0) return mytorch::zeros_like(both[0]);
  const Tensor n = both[0].to(kFloat64).reshape({-1}), given = both[1].to(kFloat64).reshape({-1});
  const double least = mytorch::amin(n).item<double>(), most = mytorch::amax(n).item<double>();
  check_value(least >= 0 && most < HUGE_VAL, op, "the counts are from ", least, " to ", most,
              ": give finite ones of at least 0");
  check_value(!holds_somewhere(mytorch::floor(n) != n), op, "count has fractions: give integers");
  const double low = mytorch::amin(given).item<double>(),
               high = mytorch::amax(given).item<double>();
  check_value(low >= 0 && high <= 1, op, "the probabilities are from ", low, " to ", high,
              ": give some in [0, 1]");
  const Tensor p = mytorch::minimum(given, 1 - given), mean = n * p, variance = mean * (1 - p);
  const auto few = [&](const Tensor& uniform) {
    const Tensor own = mytorch::where(mean < kFew, n, 0), odds = p / (1 - p);
    return by_inversion(uniform, mytorch::exp(own * mytorch::log1p(-p)),
                        [&](double k) { return odds * ((own - (k - 1)).clamp_min(0) / k); });
  };
  const auto many = [&] {
    const Tensor suits = mytorch::logical_and(mean >= kFew, variance <= kSmooth);
    return many_binomial(mytorch::where(suits, n, 40), mytorch::where(suits, p, 0.5), generator);
  };
  const Tensor counts = mytorch::minimum(choose(mean, variance, few, many, generator), n);
  return mytorch::to(mytorch::where(given > 0.5, n - counts, counts), count.dtype())
      .reshape(both[0].sizes());
}

}  // namespace mytorch::composite
