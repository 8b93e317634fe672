// What collectives take: measured curves, or formulas of links.
#include <algorithm>

#include "core/types/errors.h"
#include "plan/machine.h"

namespace mytorch::plan {
namespace {

// The bandwidth and latency of a ring through the ranks. Of the ranks on a node, each has its own
// adapter, so that a ring is divided among as many.
struct Ring {
  double bandwidth;
  double latency;  // of a turn
};
Ring ring_of(const Machine& m, const Ranks& ranks) {
  const double inner = m.inner.bandwidth * m.inner.efficiency;
  const int64_t on_node = std::max<int64_t>(1, std::min(ranks.size, m.node / ranks.stride));
  const int64_t nodes = (ranks.size + on_node - 1) / on_node;
  const double turn = static_cast<double>(ranks.size - nodes) * m.inner.latency;
  if (nodes == 1) return {inner, turn};
  const double outer = m.outer.bandwidth * m.outer.efficiency * static_cast<double>(on_node);
  // Messages of consecutive nodes overlap; a tree's depth is what remains.
  double depth = 0;
  for (int64_t n = nodes; n > 1; n = (n + 1) / 2) ++depth;
  return {on_node > 1 ? std::min(inner, outer) : outer, turn + depth * m.outer.latency};
}

double ring_seconds(const Machine& machine, const Ranks& ranks, double bytes) {
  const Ring ring = ring_of(machine, ranks);
  const auto n = static_cast<double>(ranks.size);
  return ring.latency + bytes * (n - 1) / n / ring.bandwidth;
}

// Whether there is nothing to send, for which ranks do not even wait for each other.
bool is_free(const Ranks& ranks, double bytes) { return ranks.size <= 1 || bytes <= 0; }

const Curve* curve_of(const Machine& machine, const char* collective, const Ranks& ranks) {
  for (const Curve& curve : machine.curves) {
    if (curve.ranks == ranks && curve.collective == collective) return &curve;
  }
  return nullptr;
}

}  // namespace

double Curve::seconds(double bytes) const {
  const auto above = std::find_if(times.begin(), times.end(),
                                  [bytes](const auto& time) { return time.first >= bytes; });
  if (above == times.begin()) return above->second;
  const auto [less, quick] = *(above - 1);
  if (above == times.end()) return quick * bytes / less;
  const auto [more, slow] = *above;
  return quick + (slow - quick) * (bytes - less) / (more - less);
}

double all_gather_seconds(const Machine& machine, const Ranks& ranks, double bytes) {
  if (is_free(ranks, bytes)) return 0;
  if (const Curve* curve = curve_of(machine, "all_gather", ranks)) return curve->seconds(bytes);
  return ring_seconds(machine, ranks, bytes);
}
double reduce_scatter_seconds(const Machine& machine, const Ranks& ranks, double bytes) {
  if (is_free(ranks, bytes)) return 0;
  if (const Curve* curve = curve_of(machine, "reduce_scatter", ranks)) return curve->seconds(bytes);
  return ring_seconds(machine, ranks, bytes);
}
double all_reduce_seconds(const Machine& machine, const Ranks& ranks, double bytes) {
  if (is_free(ranks, bytes)) return 0;
  if (const Curve* curve = curve_of(machine, "all_reduce", ranks)) return curve->seconds(bytes);
  return 2 * ring_seconds(machine, ranks, bytes);
}

double broadcast_seconds(const Machine& machine, const Ranks& ranks, double bytes) {
  if (is_free(ranks, bytes)) return 0;
  if (const Curve* curve = curve_of(machine, "broadcast", ranks)) return curve->seconds(bytes);
  // Parts follow each other through the ring.
  const Ring ring = ring_of(machine, ranks);
  return ring.latency + bytes / ring.bandwidth;
}

double all_to_all_seconds(const Machine& machine, const Ranks& ranks, double bytes) {
  if (is_free(ranks, bytes)) return 0;
  if (const Curve* curve = curve_of(machine, "all_to_all", ranks)) return curve->seconds(bytes);
  const auto n = static_cast<double>(ranks.size);
  const auto on_node =
      static_cast<double>(std::max<int64_t>(1, std::min(ranks.size, machine.node / ranks.stride)));
  const double inside =
      bytes * (on_node - 1) / n / (machine.inner.bandwidth * machine.inner.efficiency);
  const double outside =
      bytes * (n - on_node) / n / (machine.outer.bandwidth * machine.outer.efficiency);
  return std::max(inside, outside) + (n > on_node ? machine.outer.latency : machine.inner.latency);
}

double message_seconds(const Machine& machine, const Ranks& ranks, double bytes) {
  if (is_free(ranks, bytes)) return 0;
  if (const Curve* curve = curve_of(machine, "send_recv", ranks)) return curve->seconds(bytes);
  const Link& link = ranks.size <= machine.node / ranks.stride ? machine.inner : machine.outer;
  return link.latency + bytes / (link.bandwidth * link.efficiency);
}

const std::vector<std::pair<std::string, Collective>>& collectives() {
  static const std::vector<std::pair<std::string, Collective>> all = {
      {"all_gather", &all_gather_seconds}, {"reduce_scatter", &reduce_scatter_seconds},
      {"all_reduce", &all_reduce_seconds}, {"broadcast", &broadcast_seconds},
      {"all_to_all", &all_to_all_seconds}, {"send_recv", &message_seconds}};
  return all;
}

std::vector<std::string> collective_names() {
  std::vector<std::string> names;
  for (const auto& [name, function] : collectives()) names.push_back(name);
  return names;
}

}  // namespace mytorch::plan
