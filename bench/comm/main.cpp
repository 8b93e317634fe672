// Measures collectives through a group and through the operators, beside the library under the
// engine, in one program. Every rank runs it:
//
//   mpirun -n 4 bench_comm [--bytes 8,65536,67108864] [--rounds 15] [--seconds 0.05]
//   mytorch launch --ranks 2 bench_comm --device cuda
//
// Rank 0 prints a line of JSON for each case: medians over the rounds, in microseconds, of the
// slowest rank.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "bench/comm/bare.h"
#include "mytorch/mytorch.h"

namespace {

using bench::Collective;
using mytorch::Tensor;
namespace distributed = mytorch::distributed;
using Clock = std::chrono::steady_clock;

struct Settings {
  mytorch::Device device = mytorch::kCPU;
  std::vector<int64_t> bytes = {8, 4 << 10, 256 << 10, 4 << 20, 64 << 20};
  int rounds = 15;
  double seconds = 0.05;  // for each variant in a round
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--device") {
      settings.device = mytorch::Device(value);
    } else if (name == "--bytes") {
      settings.bytes.clear();
      std::istringstream list(value);
      for (std::string item; std::getline(list, item, ',');) {
        settings.bytes.push_back(std::atoll(item.c_str()));
      }
    } else if (name == "--rounds") {
      settings.rounds = std::atoi(value.c_str());
    } else if (name == "--seconds") {
      settings.seconds = std::atof(value.c_str());
    } else {
      throw std::runtime_error("unknown option " + name +
                               ": --device, --bytes, --rounds and --seconds are known");
    }
  }
  return settings;
}

// Returns a number of the slowest rank.
double largest(const distributed::Group& world, double value) {
  const Tensor x = mytorch::full({1}, value, mytorch::kFloat64).to(world.device());
  world.all_reduce(x, {distributed::ReduceOp::kMax});
  return x.item<double>();
}

struct Variant {
  const char* name;
  std::function<void()> call;
  std::function<void()> synchronize;
  std::vector<double> seconds = {};  // of one call, by round
};

double time_of(const distributed::Group& world, const Variant& variant, int64_t calls) {
  world.barrier();
  mytorch::synchronize(world.device());
  const auto begin = Clock::now();
  for (int64_t i = 0; i < calls; ++i) variant.call();
  variant.synchronize();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return largest(world, seconds / static_cast<double>(calls));
}

void measure(const distributed::Group& world, bench::Bare& bare, const Settings& settings,
             Collective what, int64_t bytes, bool bfloat16) {
  const mytorch::ScalarType dtype = bfloat16 ? mytorch::kBFloat16 : mytorch::kFloat32;
  const int64_t size = world.size();
  const int64_t part = std::max<int64_t>(bytes / (bfloat16 ? 2 : 4) / size, 1), all = part * size;
  const mytorch::NoGradGuard no_grad;
  const Tensor whole = mytorch::zeros({all}, dtype, world.device());
  const Tensor mine = mytorch::zeros({part}, dtype, world.device());
  void* const at_whole = whole.data_ptr();
  void* const at_part = mine.data_ptr();
  std::vector<Variant> variants;
  const char* name = nullptr;
  const auto ours = [&] { mytorch::synchronize(world.device()); };
  const auto theirs = [&] { bare.synchronize(); };
  switch (what) {
    case Collective::kAllReduce:
      name = "all_reduce";
      variants = {{"bare", [&] { bare.run(what, at_whole, at_whole, all, bfloat16); }, theirs},
                  {"group", [&] { world.all_reduce(whole); }, ours},
                  {"operator", [&] { mytorch::all_reduce(whole, "sum", world); }, ours}};
      break;
    case Collective::kAllGather:
      name = "all_gather";
      variants = {{"bare", [&] { bare.run(what, at_part, at_whole, part, bfloat16); }, theirs},
                  {"group", [&] { world.all_gather(whole, mine); }, ours},
                  {"operator", [&] { mytorch::all_gather_into_tensor(mine, world); }, ours}};
      break;
    case Collective::kReduceScatter:
      name = "reduce_scatter";
      variants = {{"bare", [&] { bare.run(what, at_whole, at_part, part, bfloat16); }, theirs},
                  {"group", [&] { world.reduce_scatter(mine, whole); }, ours},
                  {"operator", [&] { mytorch::reduce_scatter_tensor(whole, "sum", world); }, ours}};
      break;
  }
  for (const Variant& variant : variants) (void)time_of(world, variant, 3);
  const double once = time_of(world, variants[0], 3);
  const auto calls =
      static_cast<int64_t>(std::clamp(settings.seconds / std::max(once, 1e-9), 1.0, 10000.0));
  for (int round = 0; round < settings.rounds; ++round) {
    for (size_t i = 0; i < variants.size(); ++i) {
      // In another order each time.
      Variant& variant = variants[(i + static_cast<size_t>(round)) % variants.size()];
      variant.seconds.push_back(time_of(world, variant, calls));
    }
  }
  if (world.rank() != 0) return;
  std::printf("{\"collective\": \"%s\", \"bytes\": %lld, \"dtype\": \"%s\"", name,
              static_cast<long long>(all * (bfloat16 ? 2 : 4)), bfloat16 ? "bfloat16" : "float32");
  for (Variant& variant : variants) {
    auto& list = variant.seconds;
    std::nth_element(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2),
                     list.end());
    std::printf(", \"%s\": %.3f", variant.name, list[list.size() / 2] * 1e6);
  }
  std::printf("}\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Settings settings = parse(argc, argv);
    const distributed::Group world = distributed::init({.device = settings.device});
    const auto bare = settings.device.is_cpu() ? bench::bare_mpi(world) : bench::bare_nccl(world);
    if (bare == nullptr) {
      throw std::runtime_error("this program was built without the library under the engine");
    }
    if (world.rank() == 0) {
      std::printf("{\"ranks\": %d, \"engine\": \"%s\", \"library\": \"%s\", \"device\": \"%s\"}\n",
                  world.size(), world.engine().c_str(), bare->name().c_str(),
                  settings.device.str().c_str());
    }
    for (const Collective what :
         {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
      for (const bool bfloat16 : {false, true}) {
        for (const int64_t bytes : settings.bytes) {
          measure(world, *bare, settings, what, bytes, bfloat16);
        }
      }
    }
    distributed::finalize();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_comm: %s\n", error.what());
    return 1;
  }
  return 0;
}
