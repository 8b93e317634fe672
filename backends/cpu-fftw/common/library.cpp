#include "backends/cpu-fftw/common/library.h"

#include <mutex>
#include <string>

#include "backends/cpu-fftw/common/memory.h"
#include "mytorch/backend/error.h"

namespace mytorch::fftw {
namespace {

// FFTW's planners change common tables.
std::mutex& planner() {
  static auto* const mutex = new std::mutex;  // never destroyed: kernels may run until the end
  return *mutex;
}

}  // namespace

const char* describe_library() {
  static const std::string text = std::string(fftwf_version) + ", on the host's threads";
  return text.c_str();
}

template <class T>
FftwPlan<T>::FftwPlan(int64_t n, int64_t count, bool forward) {
  const int size = static_cast<int>(n), lines = static_cast<int>(count);
  const int sign = forward ? FFTW_FORWARD : FFTW_BACKWARD;
  constexpr unsigned kFlags = FFTW_ESTIMATE | FFTW_PRESERVE_INPUT;
  const std::scoped_lock lock(planner());
  // An estimate reads no memory, only addresses.
  Memory memory(2 * kAligned);
  void *const in = memory.take<char>(1), *const out = memory.take<char>(1);
  if constexpr (std::is_same_v<T, float>) {
    plan_ = fftwf_plan_many_dft(1, &size, lines, static_cast<fftwf_complex*>(in), nullptr, 1, size,
                                static_cast<fftwf_complex*>(out), nullptr, 1, size, sign, kFlags);
  } else {
    plan_ = fftw_plan_many_dft(1, &size, lines, static_cast<fftw_complex*>(in), nullptr, 1, size,
                               static_cast<fftw_complex*>(out), nullptr, 1, size, sign, kFlags);
  }
  if (plan_ == nullptr) {
    throw sdk::Error(MT_ERROR_INTERNAL,
                     "FFTW has no plan for " + std::to_string(n) + " complex points");
  }
}

template <class T>
FftwPlan<T>::~FftwPlan() {
  if (plan_ == nullptr) return;
  const std::scoped_lock lock(planner());
  if constexpr (std::is_same_v<T, float>) {
    fftwf_destroy_plan(plan_);
  } else {
    fftw_destroy_plan(plan_);
  }
}

template class FftwPlan<float>;
template class FftwPlan<double>;

}  // namespace mytorch::fftw
