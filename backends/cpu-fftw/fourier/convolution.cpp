// Transforms as convolutions, which transforms of other lengths compute.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "backends/cpu-fftw/common/memory.h"
#include "backends/cpu-fftw/fourier/arithmetic.h"
#include "backends/cpu-fftw/fourier/line.h"

namespace mytorch::fftw {
namespace {

// Filters are computed in double and then rounded.
template <class T>
std::vector<Complex<T>> spectrum_of(const std::vector<Complex<double>>& filter) {
  const int64_t n = static_cast<int64_t>(filter.size());
  const auto line = line_of<double>(n, true);
  using C = Complex<double>;
  Memory memory(2 * padded_bytes<C>(n) + padded_bytes<C>(line->work()));
  C *const from = memory.take<C>(n), *const to = memory.take<C>(n);
  std::copy(filter.begin(), filter.end(), from);
  line->run(Team(), from, to, memory.take<C>(line->work()));
  std::vector<Complex<T>> spectrum;
  for (int64_t k = 0; k < n; ++k) {
    spectrum.push_back(Complex<T>(to[k] / static_cast<double>(n)));  // of the inverse transform
  }
  return spectrum;
}

int64_t power(int64_t base, int64_t exponent, int64_t modulus) {
  int64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) result = result * base % modulus;
    base = base * base % modulus;
  }
  return result;
}

int64_t primitive_root(int64_t p) {
  std::vector<int64_t> factors;
  int64_t rest = p - 1;
  for (int64_t f = 2; rest > 1; ++f) {
    if (rest % f == 0) factors.push_back(f);
    while (rest % f == 0) rest /= f;
  }
  int64_t g = 2;
  while (std::any_of(factors.begin(), factors.end(),
                     [&](int64_t f) { return power(g, (p - 1) / f, p) == 1; })) {
    ++g;
  }
  return g;
}

// With a generator g of the numbers modulo a prime p, X[g^-q] - x[0] is a cyclic convolution of
// x[g^q] and exp(-2 pi i g^-q / p) (C. M. Rader, "Discrete Fourier transforms when the number of
// data samples is prime", 1968).
template <class T>
class PrimeLine : public Line<T> {
 public:
  using C = Complex<T>;

  PrimeLine(int64_t n, bool forward)
      : n_(n), forward_(line_of<T>(n - 1, true)), inverse_(line_of<T>(n - 1, false)) {
    const int64_t g = primitive_root(n), inverse_g = power(g, n - 2, n);
    std::vector<Complex<double>> filter;
    int64_t from = 1, to = 1;
    for (int64_t q = 0; q < n - 1; ++q) {
      from_.push_back(static_cast<int32_t>(from));
      to_.push_back(static_cast<int32_t>(to));
      filter.push_back(root_of_one(to, n, forward ? -1 : 1));
      from = from * g % n;
      to = to * inverse_g % n;
    }
    spectrum_ = spectrum_of<T>(filter);
  }

  int64_t work() const override {
    return 2 * padded(n_) + std::max(forward_->work(), inverse_->work());
  }

  void run(const Team& team, const C* from, C* to, C* work) const override {
    const int64_t m = n_ - 1;
    C *const x = work, *const y = work + padded(n_), *const inner = y + padded(n_);
    for (int64_t q = 0; q < m; ++q) x[q] = from[from_[static_cast<size_t>(q)]];
    forward_->run(team, x, y, inner);
    to[0] = from[0] + y[0];  // the sum of all
    multiply(y, spectrum_.data(), m, y);
    y[0] += from[0];  // which adds x[0] to every element of the inverse
    inverse_->run(team, y, x, inner);
    for (int64_t q = 0; q < m; ++q) to[to_[static_cast<size_t>(q)]] = x[q];
  }

 private:
  static int64_t padded(int64_t n) { return (n + 7) / 8 * 8; }

  const int64_t n_;
  std::shared_ptr<const Line<T>> forward_, inverse_;
  std::vector<int32_t> from_, to_;
  std::vector<C> spectrum_;
};

// j k = (j^2 + k^2 - (k - j)^2) / 2 makes the transform of any number of points a convolution with
// a chirp (L. I. Bluestein, "A linear filtering approach to the computation of the discrete Fourier
// transform", 1970).
template <class T>
class AnyLine : public Line<T> {
 public:
  using C = Complex<T>;

  AnyLine(int64_t n, bool forward)
      : n_(n),
        size_(size_for(2 * n - 1)),
        forward_(line_of<T>(size_, true)),
        inverse_(line_of<T>(size_, false)) {
    std::vector<Complex<double>> filter(static_cast<size_t>(size_));
    int64_t square = 0;  // j^2 modulo 2 n
    for (int64_t j = 0; j < n; ++j) {
      const Complex<double> value = root_of_one(square, 2 * n, forward ? -1 : 1);
      square = (square + 2 * j + 1) % (2 * n);
      chirp_.push_back(C(value));
      filter[static_cast<size_t>(j)] = std::conj(value);
      if (j > 0) filter[static_cast<size_t>(size_ - j)] = std::conj(value);
    }
    spectrum_ = spectrum_of<T>(filter);
  }

  int64_t work() const override {
    return 2 * padded(size_) + std::max(forward_->work(), inverse_->work());
  }

  void run(const Team& team, const C* from, C* to, C* work) const override {
    C *const x = work, *const y = work + padded(size_), *const inner = y + padded(size_);
    multiply(from, chirp_.data(), n_, x);
    std::fill(x + n_, x + size_, C());
    forward_->run(team, x, y, inner);
    multiply(y, spectrum_.data(), size_, y);
    inverse_->run(team, y, x, inner);
    multiply(x, chirp_.data(), n_, to);
  }

 private:
  static int64_t padded(int64_t n) { return (n + 7) / 8 * 8; }

  // Returns the least length from `least` on that is a power of 2, or such a one times 3 or 5.
  static int64_t size_for(int64_t least) {
    int64_t best = 0;
    for (const int64_t odd : {1, 3, 5}) {
      int64_t size = odd;
      while (size < least) size *= 2;
      if (best == 0 || size < best) best = size;
    }
    return best;
  }

  const int64_t n_, size_;
  std::shared_ptr<const Line<T>> forward_, inverse_;
  std::vector<C> chirp_, spectrum_;
};

}  // namespace

template <class T>
std::shared_ptr<const Line<T>> prime_line(int64_t n, bool forward) {
  return std::make_shared<PrimeLine<T>>(n, forward);
}
template <class T>
std::shared_ptr<const Line<T>> any_line(int64_t n, bool forward) {
  return std::make_shared<AnyLine<T>>(n, forward);
}

template std::shared_ptr<const Line<float>> prime_line(int64_t n, bool forward);
template std::shared_ptr<const Line<double>> prime_line(int64_t n, bool forward);
template std::shared_ptr<const Line<float>> any_line(int64_t n, bool forward);
template std::shared_ptr<const Line<double>> any_line(int64_t n, bool forward);

}  // namespace mytorch::fftw
