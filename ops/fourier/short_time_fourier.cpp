// Transforms of the overlapping windows of a signal, and their inverse.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/types/dims.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/_fft_c2c.h"
#include "mytorch/ops/_fft_c2r.h"
#include "mytorch/ops/_fft_r2c.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/amin.h"
#include "mytorch/ops/complex.h"
#include "mytorch/ops/constant_pad_nd.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/expand.h"
#include "mytorch/ops/imag.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/pad.h"
#include "mytorch/ops/real.h"
#include "mytorch/ops/slice.h"
#include "mytorch/ops/squeeze.h"
#include "mytorch/ops/transpose.h"
#include "mytorch/ops/unfold.h"
#include "mytorch/ops/unfold_backward.h"
#include "mytorch/ops/unsqueeze.h"
#include "mytorch/ops/view_as_real.h"
#include "ops/check.h"
#include "ops/fourier/fourier.h"

namespace mytorch::composite {
namespace {

struct Lengths {
  int64_t hop, window;
};

// The window of `win` samples in the middle of n_fft, or an undefined one, which stands for ones.
Lengths lengths_of(int64_t n_fft, const std::optional<int64_t>& hop_length,
                   const std::optional<int64_t>& win_length, const Tensor& window, const char* op) {
  check_value(n_fft >= 1, op, "n_fft is ", n_fft, ": it must be at least 1");
  const Lengths found{hop_length.value_or(n_fft / 4), win_length.value_or(n_fft)};
  check_value(found.hop >= 1, op, "hop_length is ", found.hop, ": it must be at least 1");
  check_value(found.window >= 1 && found.window <= n_fft, op, "win_length is ", found.window,
              ": it must be from 1 to n_fft, ", n_fft);
  check_shape(!window.defined() || (window.dim() == 1 && window.size(0) == found.window), op,
              "window has shape ", window.defined() ? window.sizes() : IntList(),
              ": it must have win_length, ", found.window, ", elements");
  return found;
}

// Pads to n_fft elements, on both sides.
Tensor centered(const Tensor& window, int64_t n_fft) {
  const int64_t missing = n_fft - window.size(0), before = missing / 2;
  return missing == 0 ? window : mytorch::constant_pad_nd(window, {before, missing - before}, 0);
}

// The parts of a complex signal are padded one by one, because padding moves elements.
Tensor padded(const Tensor& signal, int64_t before, int64_t after, Str mode) {
  const auto pad = [&](const Tensor& x) { return mytorch::pad(x, {before, after}, mode); };
  if (!signal.is_complex()) return pad(signal);
  return mytorch::complex(pad(mytorch::real(signal)), pad(mytorch::imag(signal)));
}

// Adds the rows of (batch, windows, n) where they lie in a signal.
Tensor overlapped(const Tensor& rows, int64_t hop) {
  const int64_t n = rows.size(2), length = n + hop * (rows.size(1) - 1);
  return mytorch::unfold_backward(rows, {rows.size(0), length}, 1, n, hop);
}

}  // namespace

Tensor stft(const Tensor& self, int64_t n_fft, std::optional<int64_t> hop_length,
            std::optional<int64_t> win_length, const Tensor& window, bool center, Str pad_mode,
            bool normalized, std::optional<bool> onesided, std::optional<bool> return_complex,
            std::optional<bool> align_to_window) {
  const char* const op = "stft";
  check_type(self.is_floating_point() || self.is_complex(), op, "self is ", self.dtype(),
             ": a signal is of a floating or complex type");
  const bool complex = self.is_complex() || (window.defined() && window.is_complex());
  check_value(complex || return_complex.has_value(), op,
              "return_complex is missing: for a real signal say whether the result is complex "
              "(true) or has the parts in its last dimension (false)");
  check_value(!center || !align_to_window.has_value(), op,
              "align_to_window is for signals that are not padded: give it with center = false");
  check_value(!complex || !onesided.value_or(false), op,
              "onesided is true, but self or window is complex: their spectrum has two sides");
  check_shape(self.dim() == 1 || self.dim() == 2, op, "self has shape ", self.sizes(),
              ": a signal is (samples) or (batch, samples)");
  const Lengths lengths = lengths_of(n_fft, hop_length, win_length, window, op);

  Tensor signal = self.dim() == 1 ? mytorch::unsqueeze(self, 0) : self;
  if (center) signal = padded(signal, n_fft / 2, n_fft / 2, pad_mode);
  if (align_to_window.value_or(false)) {
    const int64_t missing = n_fft - lengths.window, before = missing / 2;
    signal = mytorch::constant_pad_nd(signal, {before, missing - before}, 0);
  }
  check_shape(n_fft <= signal.size(1), op, "n_fft is ", n_fft, ", but the signal has only ",
              signal.size(1), " samples");
  Tensor rows = mytorch::unfold(signal, 1, n_fft, lengths.hop);  // (batch, windows, n_fft)
  if (window.defined()) {
    rows = mytorch::mul(rows, centered(window, n_fft));
  } else if (lengths.window < n_fft) {
    const Tensor ones = mytorch::ones({lengths.window}, to_real(self.dtype()), self.device());
    rows = mytorch::mul(rows, centered(ones, n_fft));
  }
  rows = fourier::as_floating(rows, op);
  const int64_t scale = normalized ? fourier::kByRoot : fourier::kNone;
  const Tensor spectra = rows.is_complex()
                             ? mytorch::_fft_c2c(rows, {2}, scale, true)
                             : mytorch::_fft_r2c(rows, {2}, scale, onesided.value_or(true));
  Tensor result = mytorch::transpose(spectra, 1, 2);
  if (self.dim() == 1) result = mytorch::squeeze(result, 0);
  return return_complex.value_or(true) ? result : mytorch::view_as_real(result);
}

Tensor istft(const Tensor& self, int64_t n_fft, std::optional<int64_t> hop_length,
             std::optional<int64_t> win_length, const Tensor& window, bool center, bool normalized,
             std::optional<bool> onesided, std::optional<int64_t> length, bool return_complex) {
  const char* const op = "istft";
  check_type(self.is_complex(), op, "self is ", self.dtype(),
             ": it must be complex, as stft returns it with return_complex = true");
  check_shape(self.dim() == 2 || self.dim() == 3, op, "self has shape ", self.sizes(),
              ": it must be (frequencies, windows) or (batch, frequencies, windows)");
  check_shape(self.numel() > 0, op, "self has shape ", self.sizes(), ", and no elements");
  const Lengths lengths = lengths_of(n_fft, hop_length, win_length, window, op);
  check_value(lengths.hop <= lengths.window, op, "hop_length is ", lengths.hop,
              ": beyond win_length, ", lengths.window, ", samples between windows are lost");
  const Tensor input = self.dim() == 2 ? mytorch::unsqueeze(self, 0) : self;
  const int64_t frequencies = input.size(1);
  const bool half = onesided.value_or(frequencies != n_fft);
  const int64_t wanted = half ? n_fft / 2 + 1 : n_fft;
  check_shape(frequencies == wanted, op, "self has ", frequencies, " frequencies, but ",
              half ? "half of the spectrum" : "the spectrum", " of n_fft = ", n_fft, " points has ",
              wanted);
  check_value(!return_complex || !half, op,
              "onesided spectra belong to real signals: return_complex must be false");
  check_type(return_complex || !window.defined() || !window.is_complex(), op,
             "window is complex, so the signal is: give return_complex = true");
  check_value(!length.has_value() || *length >= 0, op, "length is ", length.value_or(0),
              ": it must not be negative");

  const Tensor taps = centered(
      window.defined() ? window
                       : mytorch::ones({lengths.window}, to_real(self.dtype()), self.device()),
      n_fft);
  Tensor spectra = mytorch::transpose(input, 1, 2);
  const int64_t scale = normalized ? fourier::kByRoot : fourier::kByNumber;
  Tensor rows;
  if (return_complex) {
    rows = mytorch::_fft_c2c(spectra, {2}, scale, false);
  } else {
    if (!half) spectra = mytorch::slice(spectra, 2, 0, n_fft / 2 + 1, 1);
    rows = mytorch::_fft_c2r(spectra, {2}, scale, n_fft);
  }
  const Tensor squares = mytorch::expand(mytorch::mul(taps, taps), {1, rows.size(1), n_fft});
  Tensor signal = overlapped(mytorch::mul(rows, taps), lengths.hop);
  Tensor weight = overlapped(squares, lengths.hop);

  const int64_t whole = signal.size(1), start = center ? n_fft / 2 : 0;
  const int64_t end = length.has_value() ? checked(Wide{start} + *length, op, "the length")
                      : center           ? whole - n_fft / 2
                                         : whole;
  const int64_t stop = std::min(end, whole);
  signal = mytorch::slice(signal, 1, start, stop, 1);
  weight = mytorch::slice(weight, 1, start, stop, 1);
  if (weight.numel() > 0) {
    const NoGradGuard no_grad;
    const double least = mytorch::amin(mytorch::abs(weight)).item<double>();
    check_value(!(least <= 1e-11), op,
                "the squares of the windows add up to 0 somewhere, so that samples are lost: use a "
                "window without zeros at its ends, a smaller hop_length, or center = true");
  }
  signal = mytorch::div(signal, weight);
  if (end > stop) signal = mytorch::constant_pad_nd(signal, {0, end - stop}, 0);
  return self.dim() == 2 ? mytorch::squeeze(signal, 0) : signal;
}

}  // namespace mytorch::composite
