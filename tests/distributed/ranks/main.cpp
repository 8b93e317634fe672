// A rank of a launcher: checks a group of all ranks (no argument, `limited` with smaller operands,
// `quick`, which leaves out attention as well, or `window`, one-sided calls alone), or behaves as a
// rank of a test of failures: `late`, `dies`, `ends` and `differs` make rank 1 sleep, kill itself,
// leave, or make other calls; `stalled` and `lost` make it sleep or kill itself while the others
// wait for it at a window; `cut` communicates until there is an error. A last argument `cuda` does
// this on GPUs, also with `late_replay`, where rank 1 sleeps before it replays a graph; `gpus`
// prints how many there are.
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "mytorch/cuda.h"
#include "mytorch/device_graph.h"
#include "mytorch/distributed/window.h"
#include "mytorch/mytorch.h"
#include "tests/distributed/bodies.h"

namespace {

using mytorch::distributed::Group;

// Rank 1 gives other numbers of rows than the others. Every call ends its group, of which there is
// one for each.
void differ_in_parts(const Group& world) {
  using mytorch::distributed::bodies::expect_error;
  const bool other = world.rank() == 1;
  const auto rows = [&](int64_t a, int64_t b) {
    std::vector<int64_t> rows(static_cast<size_t>(world.size()), 1);
    rows[0] = a;
    rows[1] = b;
    return rows;
  };
  const auto parts = other ? rows(1, 2) : rows(2, 1);
  const mytorch::Tensor part = mytorch::ones({parts[static_cast<size_t>(world.rank())], 3});
  const mytorch::Tensor all = mytorch::ones({world.size() + 1, 3});
  const std::string text = world.size() == 3 ? "the parts have (6, 3, 3) elements on rank 0 and "
                                               "(3, 6, 3) on rank 1"
                                             : "the parts have";
  expect_error([&, group = world.split(0)] { group.all_gather_v(all, part, parts); }, text);
  expect_error([&, group = world.split(0)] { group.reduce_scatter_v(part, all, parts); }, text);
  const auto one = rows(1, 1), expected = other ? rows(2, 1) : one;
  const mytorch::Tensor sent = mytorch::ones({world.size(), 3});
  const mytorch::Tensor received = mytorch::zeros({other ? world.size() + 1 : world.size(), 3});
  expect_error([&, group = world.split(0)] { group.all_to_all_v(received, sent, expected, one); },
               "rank 0 sends 3 elements to rank 1, which expects 6");
}

void replay_late(const Group& world) {
  const mytorch::Tensor x = mytorch::ones({4}, mytorch::kFloat32, world.device());
  mytorch::DeviceGraph graph(world.device());
  graph.capture([&] { world.all_reduce(x); });
  graph.replay();
  world.barrier();
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(8));
  graph.replay();
  (void)x.sum().item<float>();
  world.barrier();
}

void run_all(const std::vector<mytorch::distributed::bodies::Body>& bodies, const Group& world,
             bool quick) {
  for (const auto& body : bodies) {
    if (quick && body.of_context) continue;
    std::fprintf(stderr, "rank %d of %d by %s: %s\n", world.rank(), world.size(),
                 world.engine().c_str(), body.name.c_str());
    body.run(world);
  }
}

// Waits for rank 1, which sleeps or dies instead.
void wait_at_window(const Group& world, bool dies) {
  const mytorch::distributed::Window window(world, 8);
  world.barrier();
  if (world.rank() == 1) {
    if (dies) std::raise(SIGKILL);
    std::this_thread::sleep_for(std::chrono::seconds(8));
  }
  window.wait("turn", [&]() -> std::optional<int> {
    if (window.fetch_add(0, 0, 0) != 0) return std::nullopt;
    return 1;
  });
}

void communicate(const Group& world) {
  world.barrier();
  std::fprintf(stderr, "rank %d communicates\n", world.rank());
  for (;;) world.all_reduce(mytorch::ones({4}));
}

}  // namespace

int main(int argc, char** argv) {
  namespace distributed = mytorch::distributed;
  const bool cuda = argc > 1 && std::strcmp(argv[argc - 1], "cuda") == 0;
  const char* role = argc > (cuda ? 2 : 1) ? argv[1] : "";
  const auto is = [&](const char* name) { return std::strcmp(role, name) == 0; };
  // The launcher may send it as soon as a rank is dead, before the others have said so.
  if (is("dies") || is("lost")) std::signal(SIGTERM, SIG_IGN);
  try {
    if (is("gpus")) {
      std::printf("%d\n", mytorch::cuda::device_count());
      return 0;
    }
    const distributed::Group world =
        distributed::init({.device = cuda ? mytorch::Device("cuda") : mytorch::kCPU});
    const bool limited = is("limited");
    const bool quick = is("quick");
    if (limited || quick) distributed::bodies::many = limited ? 12 : 300;
    distributed::bodies::here = world.device();
    if (limited || quick || *role == '\0') {
      run_all(distributed::bodies::all(), world, quick);
      return 0;
    }
    if (is("window")) {
      run_all(distributed::bodies::window_bodies(), world, quick);
      return 0;
    }
    if (is("lost") || is("stalled")) wait_at_window(world, is("lost"));
    if (is("cut")) communicate(world);
    if (is("huge")) {
      using distributed::bodies::expect;
      const int64_t n = (int64_t{1} << 31) + 8;
      const mytorch::Tensor x = mytorch::full({n}, world.rank() + 1, mytorch::kUInt8);
      const auto ends_with = [&](int64_t value, const char* what) {
        expect(x[0].item<int64_t>() == value && x[n - 1].item<int64_t>() == value, what);
      };
      world.all_reduce(x);
      ends_with(world.size() * (world.size() + 1) / 2, "all_reduce");
      x.fill_(world.rank());
      world.broadcast(x, 1);
      ends_with(1, "broadcast");
      if (world.rank() == 0) world.send(x.fill_(7), 1);
      if (world.rank() == 1) {
        world.recv(x, 0);
        ends_with(7, "recv");
      }
      return 0;
    }
    world.barrier();
    if (is("differs")) differ_in_parts(world);
    if (is("late_replay")) replay_late(world);
    if (world.rank() == 1) {
      if (is("differs")) world.broadcast(mytorch::ones({4}), 0);
      if (is("dies")) std::raise(SIGKILL);
      if (is("ends")) return 0;
      if (is("late")) std::this_thread::sleep_for(std::chrono::seconds(8));
    }
    const mytorch::Tensor x = mytorch::ones({4}, mytorch::kFloat32, world.device());
    world.all_reduce(x);
    // On GPUs, the call above has only been queued.
    (void)x.sum().item<float>();
    world.barrier();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return 0;
}
