// Transforms of one line of complex points, of any length n in O(n log n): by FFTW if it is short
// and its prime factors are small. FFTW plans long ones, and long primes, well only by measuring
// them.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/cpu-fftw/common/library.h"
#include "backends/cpu-fftw/fourier/batch.h"
#include "backends/cpu-fftw/fourier/team.h"

namespace mytorch::fftw {

// Lines are immutable, so that threads may share them. All addresses are aligned.
template <class T>
class Line {
 public:
  Line() = default;
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  virtual ~Line() = default;

  // The complex numbers of work memory that run() needs.
  virtual int64_t work() const { return 0; }
  // Transforms from one memory to another one, without a factor.
  virtual void run(const Team& team, const Complex<T>* from, Complex<T>* to,
                   Complex<T>* work) const = 0;
  // How many short lines, one after the other, run_together transforms with one call.
  virtual int64_t together() const { return 1; }
  virtual void run_together(const Complex<T>* /*from*/, Complex<T>* /*to*/) const {}
  // How many lines in the lanes of vectors are transformed, or NULL.
  virtual const Batch<T>* batch() const { return nullptr; }
};

// Returns the transform of n >= 1 points. The last ones used are kept.
template <class T>
std::shared_ptr<const Line<T>> line_of(int64_t n, bool forward);

// The parts of line_of, by kind: of a length n1 * n2 (long_line.cpp), of a prime n if n - 1 has
// small factors, and of any n (convolution.cpp).
template <class T>
std::shared_ptr<const Line<T>> long_line(int64_t n1, int64_t n2, bool forward);
template <class T>
std::shared_ptr<const Line<T>> prime_line(int64_t n, bool forward);
template <class T>
std::shared_ptr<const Line<T>> any_line(int64_t n, bool forward);

}  // namespace mytorch::fftw
