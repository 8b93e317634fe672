// Rows: lines of an operand as the kernels transform them, complex or real.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cpu-fftw/common/library.h"
#include "backends/cpu-fftw/fourier/line.h"
#include "backends/cpu-fftw/fourier/team.h"

namespace mytorch::fftw {

// Complex points to complex points.
template <class T>
class ComplexRow {
 public:
  using In = Complex<T>;
  using Out = Complex<T>;
  static constexpr bool kStoresAnywhere = false;  // at addresses that are not aligned

  ComplexRow(int64_t n, bool forward) : n_(n), line_(line_of<T>(n, forward)) {}
  int64_t points() const { return n_; }
  int64_t work() const { return line_->work(); }
  int64_t together() const { return line_->together(); }
  void run_together(const In* from, Out* to) const { line_->run_together(from, to); }
  void run(const Team& team, const In* from, Out* to, Complex<T>* work) const {
    line_->run(team, from, to, work);
  }
  // Whether run_batch exists, and of how many points at most. It transforms a line in each lane,
  // and returns where the result is: in x or y.
  bool has_batch() const { return line_->batch() != nullptr; }
  int64_t batch_points() const { return n_; }
  Point<T>* run_batch(Point<T>* x, Point<T>* y) const { return line_->batch()->run(x, y); }

 private:
  const int64_t n_;
  std::shared_ptr<const Line<T>> line_;
};

// Half of the size of a real line, as complex numbers: n real numbers of an even n are n / 2
// complex ones, whose transform has that of the even and of the odd elements in it (J. W. Cooley,
// P. A. W. Lewis, P. D. Welch, "The fast Fourier transform algorithm: programming considerations in
// the calculation of sine, cosine and Laplace transforms", 1970). For an odd n it is the whole
// line.
template <class T>
class HalvedLine {
 public:
  HalvedLine(int64_t n, bool forward);

 protected:
  static int64_t padded(int64_t n) { return (n + 7) / 8 * 8; }

  const int64_t n_, half_;  // half_: 0 if n is odd
  std::shared_ptr<const Line<T>> line_;
  std::vector<Complex<T>> roots_;  // exp(-+ 2 pi i k / n) for k <= n / 4
};

// Real points to their n / 2 + 1 frequencies, or if `whole` to all n.
template <class T>
class RealRow : HalvedLine<T> {
 public:
  using In = T;
  using Out = Complex<T>;
  static constexpr bool kStoresAnywhere = true;

  RealRow(int64_t n, bool whole) : HalvedLine<T>(n, true), whole_(whole) {}
  int64_t points() const { return n_; }
  int64_t work() const { return 2 * this->padded(n_) + line_->work(); }
  int64_t together() const { return 1; }
  void run_together(const In* /*from*/, Out* /*to*/) const {}
  void run(const Team& team, const In* from, Out* to, Complex<T>* work) const;
  bool has_batch() const { return half_ != 0 && !whole_ && line_->batch() != nullptr; }
  int64_t batch_points() const { return half_ + 1; }
  Point<T>* run_batch(Point<T>* x, Point<T>* y) const;

 private:
  using HalvedLine<T>::n_;
  using HalvedLine<T>::half_;
  using HalvedLine<T>::line_;
  using HalvedLine<T>::roots_;
  const bool whole_;
};

// n / 2 + 1 frequencies to real points.
template <class T>
class HalfRow : HalvedLine<T> {
 public:
  using In = Complex<T>;
  using Out = T;
  static constexpr bool kStoresAnywhere = false;

  explicit HalfRow(int64_t n) : HalvedLine<T>(n, false) {}
  int64_t points() const { return n_; }
  int64_t work() const { return 2 * this->padded(n_) + line_->work(); }
  int64_t together() const { return 1; }
  void run_together(const In* /*from*/, Out* /*to*/) const {}
  void run(const Team& team, const In* from, Out* to, Complex<T>* work) const;
  bool has_batch() const { return half_ != 0 && line_->batch() != nullptr; }
  int64_t batch_points() const { return half_ + 1; }
  Point<T>* run_batch(Point<T>* x, Point<T>* y) const;

 private:
  using HalvedLine<T>::n_;
  using HalvedLine<T>::half_;
  using HalvedLine<T>::line_;
  using HalvedLine<T>::roots_;
};

}  // namespace mytorch::fftw
