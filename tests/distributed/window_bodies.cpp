// One-sided calls. Expected values are computed from the ranks' numbers.
#include <algorithm>
#include <atomic>
#include <thread>

#include "mytorch/distributed/window.h"
#include "mytorch/mytorch.h"
#include "tests/distributed/bodies.h"

namespace mytorch::distributed::bodies {
namespace {

constexpr ScalarType kWindowTypes[] = {kBool,    kUInt8,   kInt8,      kInt16,
                                       kInt32,   kInt64,   kFloat16,   kBFloat16,
                                       kFloat32, kFloat64, kComplex64, kComplex128};

Tensor filled(IntList sizes, double value, ScalarType dtype) {
  return mytorch::full(sizes, value, kFloat64).to(dtype);
}
void expect_equal(const Tensor& found, const Tensor& expected, const std::string& what) {
  expect(mytorch::equal(found, expected),
         what + ": found " + found.str() + ", expected " + expected.str());
}

// Every rank writes its own part of every window, in every type, and reads all of them.
void move_through_windows(const Group& group) {
  const int size = group.size(), rank = group.rank();
  const int64_t n = std::min<int64_t>(many, 300);
  for (const ScalarType dtype : kWindowTypes) {
    const int64_t part = n * mytorch::empty({0}, dtype).element_size();
    // The last rank has none; together with the others this tests different sizes.
    const bool lends = rank + 1 < size || size == 1;
    Window window(group, lends ? part * size + rank : 0);
    const int owners = size == 1 ? 1 : size - 1;
    expect(window.bytes(0) == part * size, "the bytes of rank 0");
    expect(window.bytes(size - 1) == (size == 1 ? part : 0), "the bytes of the last rank");
    const Tensor zeros = filled({n}, 1, dtype);
    window.get(zeros, 0, rank * part);
    expect_equal(zeros, filled({n}, 0, dtype), "a new window");
    const Tensor mine = mytorch::arange(n).add(rank).remainder(7).to(dtype);
    for (int owner = 0; owner < owners; ++owner) window.put(mine, owner, rank * part);
    group.barrier();
    for (int owner = 0; owner < owners; ++owner) {
      for (int from = 0; from < size; ++from) {
        const Tensor found = filled({n}, 9, dtype);
        window.get(found, owner, from * part);
        expect_equal(found, mytorch::arange(n).add(from).remainder(7).to(dtype),
                     std::string("a window of ") + dtype_name(dtype));
      }
    }
    // Nothing, also at the end of a window, and of a rank that has none.
    window.put(filled({0}, 0, dtype), size - 1, window.bytes(size - 1));
    window.get(filled({0, 3}, 0, dtype), size - 1, 0);
    window.close();
    expect(!window.defined(), "a closed window is defined");
  }
}

void take_strided_windows(const Group& group) {
  const int64_t part = 6 * 8;
  Window window(group, group.size() * part);
  const Tensor values = mytorch::arange(6).to(kFloat64).add(10.0 * group.rank()).view({2, 3});
  window.put(values.t(), 0, group.rank() * part);
  group.barrier();
  const Tensor wide = mytorch::zeros({3, 4}, kFloat64);
  const Tensor turned = wide.narrow(1, 1, 2);
  const uint64_t version = turned.version();
  const int next = (group.rank() + 1) % group.size();
  window.get(turned, 0, next * part);
  expect_equal(turned, mytorch::arange(6).to(kFloat64).add(10.0 * next).view({2, 3}).t(),
               "a strided tensor");
  expect(turned.version() > version, "the version of what a window writes");
  expect(wide.select(1, 0).sum().item<double>() == 0, "what lies beside a strided tensor");
  window.close();
}

bool combines(ScalarType dtype, Reduction reduction) {
  const bool ordered = reduction.op == ReduceOp::kMin || reduction.op == ReduceOp::kMax;
  if (is_complex(dtype) && ordered) return false;
  return reduction.scale == 1 || is_floating_point(dtype) || is_complex(dtype);
}

// All ranks combine small integers with those of rank 0: the order does not matter.
void accumulate_every_type(const Group& group) {
  const int size = group.size(), rank = group.rank();
  const int64_t n = std::min<int64_t>(many, 100);
  const auto element = [](int r, int64_t i) { return static_cast<double>((i * 3 + r) % 3); };
  Window window(group, rank == 0 ? n * 16 : 0);
  for (const ScalarType dtype : kWindowTypes) {
    for (const Reduction reduction :
         {Reduction{ReduceOp::kSum}, Reduction{ReduceOp::kProduct}, Reduction{ReduceOp::kMin},
          Reduction{ReduceOp::kMax}, Reduction{ReduceOp::kSum, 0.5}}) {
      if (!combines(dtype, reduction)) continue;
      if (rank == 0) window.put(filled({n}, 1, dtype), 0, 0);
      group.barrier();
      const Tensor mine = mytorch::empty({n}, kFloat64);
      for (int64_t i = 0; i < n; ++i) mine.data<double>()[i] = element(rank, i);
      window.accumulate(mine.to(dtype), 0, 0, reduction);
      group.barrier();
      const Tensor expected = mytorch::empty({n}, kFloat64);
      for (int64_t i = 0; i < n; ++i) {
        double value = 1;
        for (int r = 0; r < size; ++r) {
          const double next = element(r, i) * reduction.scale;
          const bool any = reduction.op == ReduceOp::kSum || reduction.op == ReduceOp::kMax;
          if (dtype == kBool) {
            value = (any ? value != 0 || next != 0 : value != 0 && next != 0) ? 1 : 0;
          } else if (reduction.op == ReduceOp::kSum) {
            value += next;
          } else if (reduction.op == ReduceOp::kProduct) {
            value *= next;
          } else {
            value = reduction.op == ReduceOp::kMin ? std::min(value, next) : std::max(value, next);
          }
        }
        expected.data<double>()[i] = value;
      }
      const Tensor found = filled({n}, 0, dtype);
      window.get(found, 0, 0);
      expect_equal(found, expected.to(dtype),
                   std::string("accumulated ") + dtype_name(dtype) + " reduction " +
                       std::to_string(static_cast<int>(reduction.op)));
      group.barrier();  // before the next one
    }
  }
  window.close();
}

// Of 16-bit floats and others, what was there before: each rank sees the sums of those before it.
void return_what_was_there(const Group& group) {
  Window window(group, 16);
  for (const ScalarType dtype : {kBFloat16, kFloat32, kInt16}) {
    for (int turn = 0; turn < group.size(); ++turn) {
      if (turn == group.rank()) {
        const Tensor before = window.get_accumulate(filled({2}, turn + 1, dtype), 0, 0);
        expect_equal(before, filled({2}, turn * (turn + 1) / 2, dtype), "what was there");
      }
      group.barrier();
    }
    if (group.rank() == 0) window.put(filled({2}, 0, dtype), 0, 0);
    group.barrier();
  }
  window.close();
}

// All ranks, with several threads each, draw numbers, while the group does something else.
void draw_tickets(const Group& group) {
  constexpr int kThreads = 3, kEach = 20;
  Window window(group, 8);
  const int owner = group.size() - 1;
  std::vector<std::vector<int64_t>> drawn(kThreads);
  std::vector<std::thread> threads;
  std::atomic<bool> failed = false;
  for (std::vector<int64_t>& mine : drawn) {
    threads.emplace_back([&] {
      try {
        for (int i = 0; i < kEach; ++i) mine.push_back(window.fetch_add(1, owner, 0));
      } catch (const Error&) {
        failed = true;
      }
    });
  }
  for (int i = 0; i < 5; ++i) group.all_reduce(mytorch::ones({10}));
  for (std::thread& thread : threads) thread.join();
  expect(!failed, "a thread could not draw");
  const Tensor numbers = mytorch::zeros({kThreads * kEach}, kInt64);
  int64_t at = 0;
  for (const std::vector<int64_t>& mine : drawn) {
    expect(std::is_sorted(mine.begin(), mine.end()), "numbers of a thread do not rise");
    for (const int64_t number : mine) numbers.data<int64_t>()[at++] = number;
  }
  const Tensor all = mytorch::zeros({kThreads * kEach * group.size()}, kInt64);
  group.all_gather(all, numbers);
  std::vector<int64_t> sorted = all.to_vector<int64_t>();
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    expect(sorted[i] == static_cast<int64_t>(i), "a number was drawn twice, or lost");
  }
  window.close();
}

// What one call writes, no other call sees in part.
void see_calls_as_a_whole(const Group& group) {
  const int64_t n = 20 * many;
  Window window(group, group.rank() == 0 ? n * 8 : 0);
  const Tensor found = mytorch::zeros({n}, kInt64);
  for (int i = 0; i < 10; ++i) {
    if (group.rank() % 2 == 0) window.put(mytorch::full({n}, group.rank() * 100 + i, kInt64), 0, 0);
    if (group.rank() % 2 == 1) window.accumulate(mytorch::ones({n}, kInt64), 0, 0);
    window.get(found, 0, 0);
    expect(found.min().item<int64_t>() == found.max().item<int64_t>(), "a call was seen in part");
  }
  window.close();
}

// Ranks take turns at a number that each waits for.
void wait_for_turns(const Group& group) {
  constexpr int kRounds = 3;
  Window window(group, 8);
  const int last = group.size() - 1;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t mine = round * group.size() + group.rank();
    window.wait("turn", [&]() -> std::optional<int> {
      const int64_t turn = window.fetch_add(0, last, 0);
      expect(turn <= mine, "a turn was skipped");
      if (turn == mine) return std::nullopt;
      return static_cast<int>(turn % group.size());
    });
    expect(window.fetch_add(1, last, 0) == mine, "another rank took the turn");
  }
  group.barrier();
  expect(window.fetch_add(0, last, 0) == kRounds * group.size(), "turns were lost");
  window.close();
}

void refuse_bad_windows(const Group& group) {
  const Tensor x = mytorch::zeros({3}, kFloat32);
  Window window(group, 16);
  expect_error([&] { Window().put(x, 0, 0); }, "the window is undefined");
  expect_error([&] { Window(Group(), 8); }, "undefined");
  expect_error([&] { Window(group, -1); }, "bytes is -1");
  expect_error([&] { window.put(x, 0, 8); }, "12 bytes from byte 8 are outside of the window");
  expect_error([&] { window.get(x, 0, -4); }, "outside of the window of rank 0, which has 16");
  expect_error([&] { window.get(x, 0, int64_t{1} << 62); }, "outside");
  expect_error([&] { window.put(x, group.size(), 0); }, "must be a rank of the group");
  expect_error([&] { window.put(Tensor(), 0, 0); }, "undefined");
  expect_error([&] { window.accumulate(x, 0, 2); }, "must be a multiple of 4");
  expect_error([&] { window.accumulate(x, 0, 0, {ReduceOp::kAverage}); }, "no average");
  expect_error([&] { window.accumulate(x.to(kInt32), 0, 0, {ReduceOp::kSum, 2}); }, "no scale");
  expect_error([&] { window.accumulate(mytorch::zeros({2}, kComplex64), 0, 0, {ReduceOp::kMax}); },
               "no order");
  expect_error([&] { window.wait("turn", [&]() -> std::optional<int> { return group.size(); }); },
               "the awaited rank is");
  const Window copy = window;
  window.close();
  expect_error([&] { window.close(); }, "undefined");
  expect_error([&] { copy.put(x, 0, 0); }, "was closed");
  group.barrier();  // and go on
}

// The engines of devices.
void name_engines_without_windows(const Group& group) {
  expect_error([&] { Window(group, 8); }, "the engine " + group.engine() + " has no windows");
}

}  // namespace

std::vector<Body> window_bodies() {
  const std::vector<Body> of_cpu = {{"MoveThroughWindows", move_through_windows},
                                    {"TakeStridedWindows", take_strided_windows},
                                    {"AccumulateEveryType", accumulate_every_type},
                                    {"ReturnWhatWasThere", return_what_was_there},
                                    {"DrawTickets", draw_tickets},
                                    {"SeeCallsAsAWhole", see_calls_as_a_whole},
                                    {"WaitForTurns", wait_for_turns},
                                    {"RefuseBadWindows", refuse_bad_windows}};
  std::vector<Body> made;
  for (const Body& body : of_cpu) {
    made.push_back({body.name, [run = body.run](const Group& group) {
                      if (here.is_cpu()) run(group);
                    }});
  }
  made.push_back({"NameEnginesWithoutWindows", [](const Group& group) {
                    if (!here.is_cpu()) name_engines_without_windows(group);
                  }});
  return made;
}

}  // namespace mytorch::distributed::bodies
