#include <algorithm>
#include <chrono>
#include <functional>
#include <iomanip>
#include <sstream>

#include "bench/harness/statistics.h"
#include "mytorch/autograd.h"
#include "mytorch/device_memory.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/zeros.h"
#include "tools/measure.h"

namespace mytorch::tools {
namespace {

using distributed::Group;
using plan::Point;

constexpr double kLeast = 8, kFactor = 8;
constexpr int kRounds = 5;

// A number of the slowest rank.
double largest(const Group& group, double value) {
  const Tensor x = full({1}, value, kFloat64).to(group.device());
  group.all_reduce(x, {distributed::ReduceOp::kMax});
  return x.item<double>();
}

double time_of(const Group& group, const std::function<void()>& call, int64_t calls) {
  group.barrier();
  synchronize(group.device());
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) call();
  synchronize(group.device());
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  return largest(group, passed.count() / static_cast<double>(calls));
}

using Call = std::pair<const char*, std::function<void()>>;

// The collectives of a tensor that has `part` elements for each rank.
std::vector<Call> calls_of(const Group& group, int64_t part) {
  const int n = group.size();
  const Tensor all = zeros({part * n}, kFloat32, group.device());
  const Tensor other = zeros({part * n}, kFloat32, group.device());
  const Tensor mine = zeros({part}, kFloat32, group.device());
  const int next = (group.rank() + 1) % n, before = (group.rank() + n - 1) % n;
  return {{"all_reduce", [=] { group.all_reduce(all); }},
          {"all_gather", [=] { group.all_gather(all, mine); }},
          {"reduce_scatter", [=] { group.reduce_scatter(mine, all); }},
          {"all_to_all", [=] { group.all_to_all(other, all); }},
          {"broadcast", [=] { group.broadcast(all, 0); }},
          {"send_recv", [=] {
             group.exchange({{all, next, /*sends=*/true}, {other, before, /*sends=*/false}});
           }}};
}

// The bytes that a rank must send for each of the tensor's.
double share_sent(const Point& point) {
  const auto n = static_cast<double>(point.ranks.size);
  if (point.kind == "broadcast" || point.kind == "send_recv") return 1;
  return (point.kind == "all_reduce" ? 2 : 1) * (n - 1) / n;
}

}  // namespace

std::vector<Point> measure_collective_points(const Group& group, double most, double seconds) {
  const NoGradGuard no_grad;
  std::vector<Point> points;
  for (double bytes = kLeast; bytes <= most; bytes *= kFactor) {
    const int64_t part =
        std::max<int64_t>(static_cast<int64_t>(bytes) / (int64_t{4} * group.size()), 1);
    for (const auto& [name, call] : calls_of(group, part)) {
      (void)time_of(group, call, 3);
      const double once = std::max(time_of(group, call, 3), 1e-9);
      const auto calls = static_cast<int64_t>(std::clamp(seconds / (kRounds * once), 1.0, 10000.0));
      std::vector<double> rounds;
      for (int i = 0; i < kRounds; ++i) rounds.push_back(time_of(group, call, calls));
      Point point;
      point.kind = name;
      point.sizes[0] = static_cast<double>(4 * part * group.size());
      point.ranks.size = group.size();
      point.seconds = bench::median(rounds);
      points.push_back(point);
    }
  }
  std::stable_sort(points.begin(), points.end(),
                   [](const Point& a, const Point& b) { return a.kind < b.kind; });
  return points;
}

std::string collective_header() {
  std::ostringstream text;
  text << std::left << std::setw(16) << "collective" << std::right << std::setw(14) << "bytes"
       << std::setw(14) << "time, us" << std::setw(14) << "algbw, GB/s" << std::setw(14)
       << "busbw, GB/s";
  return text.str();
}

std::string collective_line(const Point& point) {
  const double rate = point.sizes[0] / point.seconds / 1e9;
  std::ostringstream text;
  text << std::fixed << std::left << std::setw(16) << point.kind << std::right << std::setw(14)
       << std::setprecision(0) << point.sizes[0] << std::setw(14) << std::setprecision(2)
       << 1e6 * point.seconds << std::setw(14) << rate << std::setw(14) << rate * share_sent(point);
  return text.str();
}

}  // namespace mytorch::tools
