#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/distributed/bench.h"

namespace bench {
namespace {

using mytorch::Tensor;
using Clock = std::chrono::steady_clock;

// JSON has no infinities.
void write(std::ostream& out, double value) {
  if (std::isfinite(value)) {
    out << value;
  } else {
    out << "null";
  }
}

double peak_bytes(const mytorch::Device& device) {
  if (!device.is_cpu()) return static_cast<double>(mytorch::memory_stats(device).allocated_peak);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace

Record::Record(std::string_view name, const Group& world) : prints_(world.rank() == 0) {
  text_.precision(12);
  text_ << R"({"case": ")" << name << R"(", "framework": "mytorch", "ranks": )" << world.size();
}
Record& Record::add(std::string_view key, double value) {
  text_ << ", \"" << key << "\": ";
  write(text_, value);
  return *this;
}
Record& Record::add(std::string_view key, const std::vector<double>& values) {
  text_ << ", \"" << key << "\": [";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i != 0) text_ << ", ";
    write(text_, values[i]);
  }
  text_ << "]";
  return *this;
}
Record& Record::add(std::string_view key, std::string_view value) {
  text_ << ", \"" << key << "\": \"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text_ << '\\';
    text_ << (c == '\n' ? ' ' : c);
  }
  text_ << "\"";
  return *this;
}
void Record::print() const {
  if (!prints_) return;
  std::printf("%s}\n", text_.str().c_str());
  std::fflush(stdout);
}

void seed_data(const Group& world) { mytorch::manual_seed(1 + world.rank()); }

double largest(const Group& world, double value) {
  const Tensor x = mytorch::full({1}, value, mytorch::kFloat64).to(world.device());
  world.all_reduce(x, {mytorch::distributed::ReduceOp::kMax});
  return x.item<double>();
}

Timing timed(const Group& world, const Settings& settings, const std::function<void()>& step) {
  const auto sample = [&](int steps) {
    world.barrier();
    mytorch::synchronize(world.device());
    const auto begin = Clock::now();
    for (int i = 0; i < steps; ++i) step();
    mytorch::synchronize(world.device());
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    return largest(world, seconds.count() / steps);
  };
  const double once = sample(1);
  const double fitting = settings.seconds / (settings.samples * std::max(once, 1e-9));
  const int steps = static_cast<int>(std::clamp<double>(fitting, 1, settings.steps));
  std::vector<double> seconds;
  for (int i = 0; i < settings.samples; ++i) seconds.push_back(sample(steps));
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front(), seconds.back()};
}

Timing measure(const Group& world, const Settings& settings, Record& record, const Step& step,
               double items, std::string_view unit) {
  std::vector<double> losses;
  for (int i = 0; i < 3; ++i) {
    const Tensor loss = step();
    if (!loss.defined()) continue;
    const Tensor mean = loss.detach().to(mytorch::kFloat32).clone();
    world.all_reduce(mean, {mytorch::distributed::ReduceOp::kAverage});
    losses.push_back(mean.item<double>());
  }
  mytorch::synchronize(world.device());
  if (!world.device().is_cpu()) mytorch::reset_peak_memory(world.device());
  const Timing timing = timed(world, settings, [&] { (void)step(); });
  const double peak = largest(world, peak_bytes(world.device()));
  record.add("step_ms", 1e3 * timing.median)
      .add("min_ms", 1e3 * timing.least)
      .add("max_ms", 1e3 * timing.most)
      .add("unit", unit)
      .add("per_second", items / timing.median)
      .add("peak_bytes", peak)
      .add("losses", losses);
  return timing;
}

double all_reduce_seconds(const Group& world, const Settings& settings, int64_t bytes) {
  const mytorch::NoGradGuard no_grad;
  const Tensor x = mytorch::zeros({bytes / 4}, mytorch::kFloat32, world.device());
  const auto call = [&] { world.all_reduce(x, {mytorch::distributed::ReduceOp::kAverage}); };
  for (int i = 0; i < 3; ++i) call();
  return timed(world, settings, call).median;
}

}  // namespace bench
