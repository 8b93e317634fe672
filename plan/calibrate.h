// Fits a machine to measured times.
#pragma once

#include <string>
#include <vector>

#include "plan/machine.h"

namespace mytorch::plan {

// A measured call: what was called, and how long it took.
struct Point {
  std::string kind;  // as in the file
  double seconds = 0;
  // Of a matmul, m, n and k; of attention, batch, heads, length and width; of kernels and host,
  // their number; of copies and collectives, bytes.
  double sizes[4] = {};
  bool causal = false, backward = false;
  Ranks ranks = {};
  bool single = false;  // of a matmul of float32
};

// Reads an array of objects, each with `kind` and `seconds`:
//   {"kind": "matmul", "m": 4096, "n": 4096, "k": 4096, "seconds": 2.1e-4}
//   {"kind": "matmul", "m": 4096, "n": 4096, "k": 4096, "dtype": "float32", "seconds": 2.8e-3}
//   {"kind": "attention", "batch": 8, "heads": 16, "length": 4096, "width": 128, "causal": true,
//    "backward": false, "seconds": 9.57e-4}
//   {"kind": "copy", "bytes": 1e9, "seconds": 5e-4}           read and written bytes together
//   {"kind": "kernels", "count": 1000, "seconds": 2e-3}       small ones that wait for nothing
//   {"kind": "host", "count": 1000, "seconds": 4e-3}          to issue so many
//   {"kind": "step", "seconds": 1e-4}                         beside what a step computes
//   {"kind": "all_gather", "ranks": 8, "stride": 1, "bytes": 1e9, "seconds": 3e-3}
// and so the other collectives(). Throws Error(kIo, kValue), with the number of the object.
std::vector<Point> read_points(const std::string& path);
// The text of such a file.
std::string points_text(const std::vector<Point>& points);

// What the machine takes for a point.
double predicted_seconds(const Machine& machine, const Point& point);

// Returns the machine with those of its constants changed that points depend on, so that the
// squares of the logarithms of predicted over measured times have the least sum. Bandwidths and
// peaks of 16-bit products stay; the shares of them that are reached are fitted, the rate of
// float32 products, and latencies. Points of collectives also become curves, which replace those of
// the same collective among the same ranks.
Machine calibrated(Machine machine, const std::vector<Point>& points);

}  // namespace mytorch::plan
