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
  // Of a matmul, m, n and k; of attention, batch, heads, length and width; of the others, bytes.
  double sizes[4] = {};
  bool causal = false, backward = false;
  Ranks ranks = {};
};

// Reads an array of objects, each with `kind` and `seconds`:
//   {"kind": "matmul", "m": 4096, "n": 4096, "k": 4096, "seconds": 2.1e-4}
//   {"kind": "attention", "batch": 8, "heads": 16, "length": 4096, "width": 128, "causal": true,
//    "backward": false, "seconds": 9.57e-4}
//   {"kind": "copy", "bytes": 1e9, "seconds": 5e-4}           read and written bytes together
//   {"kind": "all_gather", "ranks": 8, "stride": 1, "bytes": 1e9, "seconds": 3e-3}
// and so reduce_scatter, all_reduce and all_to_all. Throws Error(kIo, kValue), with the number of
// the object.
std::vector<Point> read_points(const std::string& path);

// What the machine takes for a point.
double predicted_seconds(const Machine& machine, const Point& point);

// Returns the machine with those of its constants changed that points depend on, so that the
// squares of the logarithms of predicted over measured times have the least sum. Bandwidths and
// peaks stay; the shares of them that are reached are fitted, and latencies.
Machine calibrated(Machine machine, const std::vector<Point>& points);

}  // namespace mytorch::plan
