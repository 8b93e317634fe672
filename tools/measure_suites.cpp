#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "conformance/page.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "tools/measure.h"

namespace mytorch::tools {
namespace {

using distributed::Group;
using plan::Point;

std::string sizes_text(const Point& point) {
  std::ostringstream text;
  const size_t count = point.kind == "matmul"      ? 3
                       : point.kind == "attention" ? 4
                       : point.kind == "step"      ? 0
                                                   : 1;
  for (size_t i = 0; i < count; ++i) {
    text << (i > 0 ? " x " : "") << std::fixed << std::setprecision(0) << point.sizes[i];
  }
  if (point.kind == "matmul") text << (point.single ? " float32" : " bfloat16");
  if (point.kind == "attention") text << (point.backward ? " backward" : " forward");
  return text.str();
}

// What a second has of a point: operations, bytes, or calls.
std::string rate_text(const Point& point) {
  const double* s = point.sizes;
  std::ostringstream text;
  text << std::fixed << std::setprecision(1);
  if (point.kind == "matmul") {
    text << 2 * s[0] * s[1] * s[2] / point.seconds / 1e12 << " TFLOP/s";
  } else if (point.kind == "attention") {  // a causal mask leaves half
    text << (point.backward ? 10 : 4) * s[0] * s[1] * s[2] * s[2] * s[3] / 2 / point.seconds / 1e12
         << " TFLOP/s";
  } else if (point.kind == "copy") {
    text << s[0] / point.seconds / 1e9 << " GB/s";
  } else if (point.kind != "step") {
    text << 1e6 * point.seconds / s[0] << " us each";
  }
  return text.str();
}

void machine_suite(const SuiteOptions& options) {
  const std::vector<Point> points = measure_device_points(options.device, options.seconds);
  for (const Point& point : points) {
    std::cout << std::left << std::setw(12) << point.kind << std::setw(30) << sizes_text(point)
              << std::right << std::fixed << std::setprecision(2) << std::setw(12)
              << 1e6 * point.seconds << " us" << std::setw(18) << rate_text(point) << "\n";
  }
  if (!options.out.empty()) write_points(points, options.out);
}

// On each rank of a group.
void comm_suite(const SuiteOptions& options, const Group& group) {
  if (group.size() < 2) {
    fail(ErrorCode::kValue,
         "[bench] --suite comm needs several ranks: give --ranks 2 for threads, or start processes "
         "by mytorch launch --ranks 2 mytorch bench --suite comm");
  }
  const double most = options.most > 0          ? options.most
                      : group.device().is_cpu() ? 64 << 20
                                                : 1 << 30;
  const std::vector<Point> points = measure_collective_points(group, most, options.seconds);
  if (group.rank() != 0) return;
  std::cout << group.size() << " ranks on " << options.device.str() << ", engine " << group.engine()
            << "\n\n"
            << collective_header() << "\n";
  for (const Point& point : points) std::cout << collective_line(point) << "\n";
  if (!options.out.empty()) write_points(points, options.out);
}

// Is there before others write it, so that nobody else makes one of that name.
struct TemporaryFile {
  std::string path = (std::filesystem::temp_directory_path() / "mytorch-points-XXXXXX").string();
  TemporaryFile() {
    const int file = ::mkstemp(path.data());
    if (file < 0) fail(ErrorCode::kIo, "[plan] cannot write ", path, ": ", std::strerror(errno));
    ::close(file);
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
};

}  // namespace

void run_machine_suite(const SuiteOptions& options) {
  conformance::check_writable("bench", options.out);
  if (options.suite == "machine") {
    machine_suite(options);
  } else if (options.ranks > 0) {
    if (!options.device.is_cpu()) {
      fail(ErrorCode::kValue, "[bench] --ranks starts threads on the CPU: for ",
           options.device.str(), ", mytorch launch starts processes");
    }
    distributed::run_local(options.ranks, [&](const Group& group) { comm_suite(options, group); });
  } else {
    comm_suite(options, distributed::init({.device = options.device}));
    distributed::finalize();
  }
}

std::vector<Point> launch_collectives(Device device, int ranks, double most, double seconds) {
  const TemporaryFile file;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> words = {self, "launch", "--ranks", std::to_string(ranks),
                                    // Whether or not the machine has GPUs.
                                    device.is_cpu() ? "--mpi" : "--no-mpi", self, "bench",
                                    "--suite", "comm", "--device",
                                    std::string(device_type_name(device.type)), "--seconds",
                                    std::to_string(seconds), "--out", file.path};
  if (most > 0) words.insert(words.end(), {"--most", std::to_string(most)});
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(STDERR_FILENO, STDOUT_FILENO);  // the machine file alone goes to standard output
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(self.c_str(), argv.data());
    ::_exit(127);
  }
  int status = -1;
  const bool ended = child > 0 && ::waitpid(child, &status, 0) == child;
  if (!ended || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fail(ErrorCode::kInternal, "[plan] collectives among ", ranks,
         " ranks could not be measured; --ranks 1 leaves them out");
  }
  return plan::read_points(file.path);
}

}  // namespace mytorch::tools
