// The machine's own limit: multiply-adds on independent sums in registers.
#pragma once

namespace mytorch::bench {

// GFLOP/s of float32 of `threads` threads that only multiply and add: the best of a few
// milliseconds. Clocks move from minute to minute, so measure it anew beside every benchmark.
double measure_peak(int threads);

}  // namespace mytorch::bench
