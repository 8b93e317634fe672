#include "backends/reference/fold.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "backends/reference/exact.h"
#include "mytorch/backend/dtype.h"

namespace mytorch::reference {
namespace {

template <class E>
E get(Value value) {
  if constexpr (std::is_same_v<E, double>) {
    return value.f;
  } else {
    return value.i;
  }
}
inline Value put(double value) { return real(value); }
inline Value put(int64_t value) { return whole(value); }

template <class E>
class SumFold : public Fold {
 public:
  void reset() override { sum_ = Sum<E>(); }
  void push(Value value) override { sum_.add(get<E>(value)); }
  std::vector<Value> state() const override { return {put(sum_.value())}; }

 private:
  Sum<E> sum_;
};

template <class E>
class ProdFold : public Fold {
 public:
  void reset() override { product_ = 1; }
  void push(Value value) override { product_ = mul(product_, get<E>(value)); }
  std::vector<Value> state() const override { return {put(product_)}; }

 private:
  E product_ = 1;
};

// max, min, argmax and argmin: the first of equal extrema; the first NaN precedes all numbers.
template <class E, bool kLargest, bool kIndex>
class BestFold : public Fold {
 public:
  void reset() override {
    count_ = 0;
    index_ = 0;
    best_ = worst();
  }
  void push(Value value) override {
    const E x = get<E>(value);
    if (count_ == 0 || better(x)) {
      best_ = x;
      index_ = count_;
    }
    ++count_;
  }
  std::vector<Value> state() const override {
    if (kIndex) return {whole(index_), put(best_)};
    return {put(best_)};
  }

 private:
  static E worst() {
    using Limits = std::numeric_limits<E>;
    if constexpr (Limits::has_infinity) return kLargest ? -Limits::infinity() : Limits::infinity();
    return kLargest ? Limits::lowest() : Limits::max();
  }
  bool better(E x) const {
    if (best_ != best_) return false;
    return x != x || (kLargest ? x > best_ : x < best_);
  }

  int64_t count_ = 0;
  int64_t index_ = 0;
  E best_ = worst();
};

// `all` and `any`, of bools.
template <bool kAll>
class LogicFold : public Fold {
 public:
  void reset() override { result_ = kAll; }
  void push(Value value) override {
    result_ = kAll ? result_ && value.i != 0 : result_ || value.i != 0;
  }
  std::vector<Value> state() const override { return {whole(result_)}; }

 private:
  bool result_ = kAll;
};

// Count, mean and the sum of squared differences from the mean, in one pass (Welford 1962).
class WelfordFold : public Fold {
 public:
  void reset() override { count_ = mean_ = m2_ = 0; }
  void push(Value value) override {
    count_ += 1;
    const double delta = value.f - mean_;
    mean_ += delta / count_;
    m2_ += delta * (value.f - mean_);
  }
  std::vector<Value> state() const override { return {real(count_), real(mean_), real(m2_)}; }

 private:
  double count_ = 0;
  double mean_ = 0;
  double m2_ = 0;
};

// The maximum, and the sum of exp(x - maximum). Elements equal to the maximum count 1, since for an
// infinite maximum exp(inf - inf) would be NaN.
class LogSumExpFold : public Fold {
 public:
  void reset() override {
    max_ = -std::numeric_limits<double>::infinity();
    sum_ = 0;
  }
  void push(Value value) override {
    const double x = value.f;
    if (std::isnan(x) || std::isnan(max_)) {
      max_ = sum_ = std::numeric_limits<double>::quiet_NaN();
    } else if (x == max_) {
      sum_ += 1;
    } else if (x < max_) {
      sum_ += std::exp(x - max_);
    } else {
      sum_ = sum_ * std::exp(max_ - x) + 1;
      max_ = x;
    }
  }
  std::vector<Value> state() const override { return {real(max_), real(sum_)}; }

 private:
  double max_ = -std::numeric_limits<double>::infinity();
  double sum_ = 0;
};

template <class F>
std::unique_ptr<Fold> make() {
  return std::make_unique<F>();
}

struct Entry {
  const char* name;
  std::unique_ptr<Fold> (*floating)();
  std::unique_ptr<Fold> (*integer)();
};

constexpr Entry kFolds[] = {
    {"sum", make<SumFold<double>>, make<SumFold<int64_t>>},
    {"prod", make<ProdFold<double>>, make<ProdFold<int64_t>>},
    {"max", make<BestFold<double, true, false>>, make<BestFold<int64_t, true, false>>},
    {"min", make<BestFold<double, false, false>>, make<BestFold<int64_t, false, false>>},
    {"argmax", make<BestFold<double, true, true>>, make<BestFold<int64_t, true, true>>},
    {"argmin", make<BestFold<double, false, true>>, make<BestFold<int64_t, false, true>>},
    {"all", make<LogicFold<true>>, make<LogicFold<true>>},
    {"any", make<LogicFold<false>>, make<LogicFold<false>>},
    {"welford", make<WelfordFold>, nullptr},
    {"logsumexp", make<LogSumExpFold>, nullptr},
};

}  // namespace

std::unique_ptr<Fold> make_fold(std::string_view name, bool floating) {
  for (const Entry& entry : kFolds) {
    if (entry.name != name) continue;
    const auto maker = floating ? entry.floating : entry.integer;
    return maker == nullptr ? nullptr : maker();
  }
  return nullptr;
}

}  // namespace mytorch::reference
