#include "plan/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/types/errors.h"

namespace mytorch::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

void check_seconds(double seconds, const char* what) {
  if (!(seconds >= 0) || !std::isfinite(seconds)) {
    fail(ErrorCode::kValue, "[plan] ", what, " of ", seconds,
         " seconds: give a finite number that is not negative");
  }
}

void check_after(int after, size_t count, const char* what) {
  if (after < -1 || after >= static_cast<int>(count)) {
    fail(ErrorCode::kValue, "[plan] a ", what, " waits for number ", after, " of ", count,
         ": give -1 for none");
  }
}

// One of the two sides: what runs, or waits to begin.
class Side {
 public:
  explicit Side(size_t count) : ends_(count, kNever) {}

  bool over() const { return next_ == ends_.size(); }
  size_t next() const { return next_; }
  bool running() const { return left_ >= 0; }
  double left() const { return left_; }
  void begin(double seconds) { left_ = seconds; }
  void advance(double seconds) { left_ = std::max(left_ - seconds, 0.0); }
  void end(double now) {
    ends_[next_++] = now;
    left_ = -1;
  }
  // Whether number `i` is over; true for -1.
  bool has_ended(int i) const { return i < static_cast<int>(next_); }
  std::vector<double>& ends() { return ends_; }

 private:
  std::vector<double> ends_;
  size_t next_ = 0;
  double left_ = -1;  // of what runs, alone; negative: nothing runs
};

}  // namespace

Ends run(const std::vector<Computation>& computations,
         const std::vector<Communication>& communications, double rate) {
  if (!(rate > 0) || rate > 1) {
    fail(ErrorCode::kValue, "[plan] computations beside communication at ", rate,
         " of their speed: give more than 0, at most 1");
  }
  for (const Computation& c : computations) {
    check_seconds(c.seconds, "a computation");
    check_seconds(c.issued, "a computation that is issued after");
    check_after(c.after, communications.size(), "computation");
  }
  for (const Communication& c : communications) {
    check_seconds(c.seconds, "a communication");
    check_after(c.after, computations.size(), "communication");
  }
  Side compute(computations.size()), channel(communications.size());
  double now = 0;
  while (!compute.over() || !channel.over()) {
    double issue = kNever;  // when the host has issued what waits for nothing else
    if (!compute.running() && !compute.over()) {
      const Computation& c = computations[compute.next()];
      if (channel.has_ended(c.after)) {
        if (c.issued <= now) {
          compute.begin(c.seconds);
        } else {
          issue = c.issued;
        }
      }
    }
    if (!channel.running() && !channel.over()) {
      const Communication& c = communications[channel.next()];
      if (compute.has_ended(c.after)) channel.begin(c.seconds);
    }
    const double speed = channel.running() ? rate : 1;
    const double compute_end = compute.running() ? now + compute.left() / speed : kNever;
    const double channel_end = channel.running() ? now + channel.left() : kNever;
    const double then = std::min({compute_end, channel_end, issue});
    if (then == kNever) {
      fail(ErrorCode::kValue, "[plan] computation ", compute.next(), " and communication ",
           channel.next(), " wait for each other");
    }
    if (compute.running()) compute.advance((then - now) * speed);
    if (channel.running()) channel.advance(then - now);
    now = then;
    if (compute_end <= now) compute.end(now);
    if (channel_end <= now) channel.end(now);
  }
  return {std::move(compute.ends()), std::move(channel.ends()), now};
}

std::vector<Bucket> buckets_of(const std::vector<Gradient>& gradients, double first, double most) {
  std::vector<Bucket> buckets;
  for (const Gradient& gradient : gradients) {
    const double limit = buckets.size() <= 1 ? first : most;
    if (buckets.empty() || buckets.back().bytes + gradient.bytes > limit) buckets.emplace_back();
    buckets.back().bytes += gradient.bytes;
    buckets.back().last = std::max(buckets.back().last, gradient.computation);
  }
  return buckets;
}

}  // namespace mytorch::plan
