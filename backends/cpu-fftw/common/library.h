// FFTW's plans by element type. Plans are those that FFTW estimates to be fast: measuring takes up
// to a second for each length and gives other bits in every process.
#pragma once

#include <fftw3.h>

#include <complex>
#include <cstdint>
#include <type_traits>

namespace mytorch::fftw {

template <class T>
using Complex = std::complex<T>;

// The text of `mytorch info`.
const char* describe_library();

// The addresses that a plan takes are multiples of this: those of vector instructions.
inline constexpr uintptr_t kAligned = 64;

inline bool is_aligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;  // what FFTW compares
}

// A transform of `count` lines of n complex points that lie one after the other, from one memory to
// another. Threads may run a plan at the same time.
template <class T>
class FftwPlan {
 public:
  FftwPlan() = default;
  FftwPlan(int64_t n, int64_t count, bool forward);
  ~FftwPlan();
  FftwPlan(const FftwPlan&) = delete;
  FftwPlan& operator=(const FftwPlan&) = delete;

  // Both addresses must be aligned.
  void run(const Complex<T>* from, Complex<T>* to) const {
    auto* const in = const_cast<Complex<T>*>(from);  // FFTW preserves it
    if constexpr (std::is_same_v<T, float>) {
      fftwf_execute_dft(plan_, reinterpret_cast<fftwf_complex*>(in),
                        reinterpret_cast<fftwf_complex*>(to));
    } else {
      fftw_execute_dft(plan_, reinterpret_cast<fftw_complex*>(in),
                       reinterpret_cast<fftw_complex*>(to));
    }
  }

 private:
  std::conditional_t<std::is_same_v<T, float>, fftwf_plan, fftw_plan> plan_ = nullptr;
};

}  // namespace mytorch::fftw
