// GPUs and the links between them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mytorch::plan {

// What a GPU reaches of its peak. A product of (m, k) and (k, n) reaches
//   matmul * h(m) * h(n) * h(k), where h(x) = x / (x + matmul_half),
// and attention over n tokens, counting the scores that its mask leaves,
//   attention * n / (n + attention_half) * min(1, 1.5 * width / (width + 64)), width that of a
//   head.
struct Gpu {
  std::string name;
  double flops = 0;      // of 16-bit products, a second
  double single = 0;     // of float32 products
  double memory = 0;     // bytes
  double bandwidth = 0;  // bytes a second
  double matmul = 0.66;
  double matmul_half = 128;
  double attention_forward = 0.62;
  double attention_backward = 0.5;
  double attention_half = 200;
  double stream = 0.8;    // share of the bandwidth that pointwise kernels reach
  double kernel = 3e-6;   // seconds between kernels
  double host = 4e-6;     // seconds in which the host issues a kernel
  double step = 0.01;     // seconds of a step that belong to nothing else: data, logs, stragglers
  double reserved = 6e9;  // bytes of the driver, of libraries and of fragmentation
};

// A way between GPUs: a message of n bytes takes latency + n / (bandwidth * efficiency).
struct Link {
  std::string name;
  double bandwidth = 0;  // bytes a second, of a GPU, in one direction
  double latency = 0;    // seconds
  double efficiency = 0.8;
};

// Ranks of a group: rank i is GPU `first + i * stride`, where `stride` GPUs lie between neighbors.
struct Ranks {
  int64_t size = 1;
  int64_t stride = 1;
  bool operator==(const Ranks&) const = default;
};

// Measured times of a collective. They replace the formula of links for the same ranks.
struct Curve {
  std::string collective;  // as collectives() names it
  Ranks ranks;
  std::vector<std::pair<double, double>> times;  // bytes and seconds, by bytes; one at least
  // Between two sizes, times lie on a line; beyond the largest they grow in proportion to bytes.
  double seconds(double bytes) const;
};

struct Machine {
  Gpu gpu;
  int64_t node = 8;  // GPUs that the inner link connects
  Link inner;        // NVLink
  Link outer;        // the network
  // How much of a communication runs beside computation, at most.
  double tensor_overlap = 0.5;    // of tensor parallelism
  double pipeline_overlap = 0.8;  // of what goes between stages
  // The speed of computation while gradients or parameters are exchanged beside it.
  double data_overlap = 0.7;
  std::vector<Curve> curves = {};
};

// Return the GPU (a100, h100, h200, b200) or network (ib200, ib400, ib800, eth100, eth400) of that
// name. Throw Error(kValue), listing the names, for an unknown one.
Machine machine_of(const std::string& gpu, const std::string& network);
// Reads a machine file: what it does not say is as machine_of("h100", "ib400") has it. Throws
// Error(kIo) or Error(kValue); unknown keys are errors.
Machine read_machine(const std::string& path);
// The text of a machine file.
std::string machine_text(const Machine& machine);

// ---- seconds ----

// `bytes` are those of an element.
double matmul_seconds(const Gpu& gpu, double m, double n, double k, double bytes = 2);
// The operations a second that a product of these sizes reaches.
double matmul_rate(const Gpu& gpu, double m, double n, double k, double bytes = 2);
// The same for attention over so many tokens, with heads of a width.
double attention_rate(const Gpu& gpu, double length, double width, bool backward);
// Of attention of (batch, heads, length, width) to `keys`, of which a causal mask leaves half.
double attention_seconds(const Gpu& gpu, double batch, double heads, double length, double keys,
                         double width, bool causal, bool backward);
// Of kernels that read and write so many bytes.
double stream_seconds(const Gpu& gpu, double bytes, int kernels);

// Of collectives of `bytes`, the size of the whole tensor: as measured, or as a ring computes them,
// whose slowest part decides; the GPUs of a node share the links of all of them. One rank, and no
// bytes, take no time.
double all_gather_seconds(const Machine& machine, const Ranks& ranks, double bytes);
double reduce_scatter_seconds(const Machine& machine, const Ranks& ranks, double bytes);
double all_reduce_seconds(const Machine& machine, const Ranks& ranks, double bytes);
double broadcast_seconds(const Machine& machine, const Ranks& ranks, double bytes);
// `bytes` are those that a rank sends, in equal parts to all.
double all_to_all_seconds(const Machine& machine, const Ranks& ranks, double bytes);
// To the next rank, while as much comes from the one before.
double message_seconds(const Machine& machine, const Ranks& ranks, double bytes);

using Collective = double (*)(const Machine&, const Ranks&, double bytes);
// These, by the names of files: all_gather, reduce_scatter, all_reduce, broadcast, all_to_all and
// send_recv.
const std::vector<std::pair<std::string, Collective>>& collectives();
std::vector<std::string> collective_names();

}  // namespace mytorch::plan
