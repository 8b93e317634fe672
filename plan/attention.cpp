#include "plan/attention.h"

#include <algorithm>

namespace mytorch::plan {

AttentionTime ring_attention(const Machine& machine, const SplitAttention& a, const Ranks& ranks,
                             bool backward) {
  const auto n = static_cast<double>(ranks.size);
  const double rows = a.length / n;
  // The zigzag gives all ranks half of the work in each step.
  const double step = attention_seconds(machine.gpu, a.batch, a.heads, rows, rows, a.width,
                                        /*causal=*/true, backward);
  AttentionTime time{n * step, 0};
  const double keys = 2 * a.batch * rows * a.key_heads * a.width;
  const double bytes = keys * a.element + (backward ? keys * 4 : 0);
  if (ranks.size > 1) {
    time.exchange = (n - 1) * std::max(0.0, message_seconds(machine, ranks, bytes) - step);
  }
  return time;
}

AttentionTime ulysses_attention(const Machine& machine, const SplitAttention& a, const Ranks& ranks,
                                bool backward) {
  const auto n = static_cast<double>(ranks.size);
  AttentionTime time;
  time.compute = attention_seconds(machine.gpu, a.batch, a.heads / n, a.length, a.length, a.width,
                                   /*causal=*/true, backward);
  const double row = a.batch * a.length / n * a.width * a.element;
  time.exchange = 2 * all_to_all_seconds(machine, ranks, row * a.heads) +
                  2 * all_to_all_seconds(machine, ranks, row * a.key_heads);
  return time;
}

}  // namespace mytorch::plan
