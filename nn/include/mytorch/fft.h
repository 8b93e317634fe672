// Fourier transforms by libtorch's names: fft::fft(x, n, dim, norm) is the operator fft_fft.
//
//   fft::rfft(signal);                       // along the last dimension
//   fft::fft2(images, {}, {-2, -1}, "ortho");
//   fft::irfft(spectrum, signal.size(-1));   // sizes may be odd
//
// Each operator's page says more: mytorch/ops/fft_fft.h and so on.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "mytorch/list.h"
#include "mytorch/ops/fft_fft.h"
#include "mytorch/ops/fft_fft2.h"
#include "mytorch/ops/fft_fftfreq.h"
#include "mytorch/ops/fft_fftn.h"
#include "mytorch/ops/fft_fftshift.h"
#include "mytorch/ops/fft_hfft.h"
#include "mytorch/ops/fft_hfft2.h"
#include "mytorch/ops/fft_hfftn.h"
#include "mytorch/ops/fft_ifft.h"
#include "mytorch/ops/fft_ifft2.h"
#include "mytorch/ops/fft_ifftn.h"
#include "mytorch/ops/fft_ifftshift.h"
#include "mytorch/ops/fft_ihfft.h"
#include "mytorch/ops/fft_ihfft2.h"
#include "mytorch/ops/fft_ihfftn.h"
#include "mytorch/ops/fft_irfft.h"
#include "mytorch/ops/fft_irfft2.h"
#include "mytorch/ops/fft_irfftn.h"
#include "mytorch/ops/fft_rfft.h"
#include "mytorch/ops/fft_rfft2.h"
#include "mytorch/ops/fft_rfftfreq.h"
#include "mytorch/ops/fft_rfftn.h"
#include "mytorch/tensor.h"

namespace mytorch::fft {

// ---- one dimension ----

#define MYTORCH_FFT_LINE(name)                                                                \
  inline Tensor name(const Tensor& self, std::optional<int64_t> n = std::nullopt,             \
                     int64_t dim = -1, std::optional<std::string_view> norm = std::nullopt) { \
    return fft_##name(self, n, dim, norm);                                                    \
  }
MYTORCH_FFT_LINE(fft)
MYTORCH_FFT_LINE(ifft)
MYTORCH_FFT_LINE(rfft)
MYTORCH_FFT_LINE(irfft)
MYTORCH_FFT_LINE(hfft)
MYTORCH_FFT_LINE(ihfft)
#undef MYTORCH_FFT_LINE

// ---- two dimensions, and any number ----

#define MYTORCH_FFT_PLANE(name)                                                          \
  inline Tensor name(const Tensor& self, OptionalIntList s = {}, IntList dim = {-2, -1}, \
                     std::optional<std::string_view> norm = std::nullopt) {              \
    return fft_##name(self, s, dim, norm);                                               \
  }
MYTORCH_FFT_PLANE(fft2)
MYTORCH_FFT_PLANE(ifft2)
MYTORCH_FFT_PLANE(rfft2)
MYTORCH_FFT_PLANE(irfft2)
MYTORCH_FFT_PLANE(hfft2)
MYTORCH_FFT_PLANE(ihfft2)
#undef MYTORCH_FFT_PLANE

#define MYTORCH_FFT_ANY(name)                                                              \
  inline Tensor name(const Tensor& self, OptionalIntList s = {}, OptionalIntList dim = {}, \
                     std::optional<std::string_view> norm = std::nullopt) {                \
    return fft_##name(self, s, dim, norm);                                                 \
  }
MYTORCH_FFT_ANY(fftn)
MYTORCH_FFT_ANY(ifftn)
MYTORCH_FFT_ANY(rfftn)
MYTORCH_FFT_ANY(irfftn)
MYTORCH_FFT_ANY(hfftn)
MYTORCH_FFT_ANY(ihfftn)
#undef MYTORCH_FFT_ANY

// ---- frequencies ----

inline Tensor fftfreq(int64_t n, double d = 1.0, const TensorOptions& options = {}) {
  return fft_fftfreq(n, d, options);
}
inline Tensor fftfreq(int64_t n, const TensorOptions& options) {
  return fft_fftfreq(n, 1.0, options);
}
inline Tensor rfftfreq(int64_t n, double d = 1.0, const TensorOptions& options = {}) {
  return fft_rfftfreq(n, d, options);
}
inline Tensor rfftfreq(int64_t n, const TensorOptions& options) {
  return fft_rfftfreq(n, 1.0, options);
}
inline Tensor fftshift(const Tensor& self, OptionalIntList dim = {}) {
  return fft_fftshift(self, dim);
}
inline Tensor ifftshift(const Tensor& self, OptionalIntList dim = {}) {
  return fft_ifftshift(self, dim);
}

}  // namespace mytorch::fft
