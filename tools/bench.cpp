// `mytorch bench`.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <set>

#include "bench/harness/cases.h"
#include "bench/harness/report.h"
#include "bench/harness/runner.h"
#include "bench/harness/subject.h"
#include "conformance/custom.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/choice/choice.h"
#include "mytorch/backends.h"
#include "mytorch/error.h"
#include "mytorch/threads.h"
#include "tools/case_options.h"
#include "tools/commands.h"

namespace mytorch::tools {
namespace {

struct BenchArguments {
  CaseOptions cases;
  std::vector<std::string> backends;
  std::string device = "cpu";
  int threads = 0;
  std::string cache = "warm";
  double seconds = 0.4;
  std::string json;
  std::string compare;
};

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kValue, "[bench] " + what);
}

void check_backends(const std::vector<std::string>& names, Device device) {
  std::set<std::string> known = {"chosen"};
  for (const Backend* backend : backends()) {
    if (backend->device_slot == checked_device_slot(device)) known.insert(backend->name);
  }
  for (const std::string& name : names) {
    if (known.contains(name)) continue;
    std::string list;
    for (const std::string& each : known) list += (list.empty() ? "" : ", ") + each;
    refuse("no backend '" + name + "' for " + device.str() + "; the backends are " + list +
           " (see `mytorch info`)");
  }
}

int bench_command(const BenchArguments& given) {
  load_default_backends();
  const Device device(given.device);
  check_backends(given.backends, device);
  const std::string share = conformance::share_folder();
  const auto catalog = conformance::all_records(share);
  auto cases = select_cases(catalog, share, given.cases, "bench");
  for (bench::Case& c : cases) c.device = device;
  // Errors are found before the machine is measured, which takes seconds.
  std::vector<bench::Other> others;
  if (!given.compare.empty()) others = bench::read_results(given.compare);
  if (!given.json.empty() && !std::ofstream(given.json, std::ios::app)) {
    throw Error(ErrorCode::kIo, "[bench] cannot write " + given.json);
  }
  if (given.cases.suite.empty()) {
    for (const bench::Case& c : cases) bench::make_subject(c);  // throws the errors of the call
  }

  bench::Options options;
  options.backends = given.backends;
  options.threads = given.threads > 0 ? given.threads : num_threads();
  options.warm = given.cache != "cold";
  options.cold = given.cache != "warm";
  options.seconds = given.seconds;
  options.device = device;
  const bench::Machine machine =
      device.is_cpu() ? bench::measure_machine(options.threads) : bench::measure_device(device);
  bench::Table table(std::cout);
  if (device.is_cpu()) {
    table.machine(machine, options.threads);
  } else {
    table.device(machine, device);
  }
  std::vector<bench::Row> rows;
  for (const bench::Case& c : cases) {
    std::vector<bench::Row> of_case;
    try {
      of_case = bench::measure(catalog, c, options, std::cerr);
    } catch (const Error& error) {
      // A suite continues after a case that fails, such as one with an unsupported type.
      if (given.cases.suite.empty()) throw;
      std::cerr << c.name << ": " << error.what() << "\n";
    }
    for (bench::Row& row : of_case) {
      table.row(row);
      rows.push_back(std::move(row));
    }
  }
  if (rows.empty()) refuse("no case could be measured");
  if (!given.json.empty()) {
    bench::write_json(bench::to_json(rows, machine, options.threads), given.json);
  }
  if (!given.compare.empty()) bench::print_comparison(rows, others, std::cout);
  return 0;
}

}  // namespace

Run add_bench(CLI::App& app) {
  auto given = std::make_shared<BenchArguments>();
  add_case_options(app, given->cases);
  app.add_option("--backend", given->backends,
                 "backends to compare; `chosen` is the dispatcher's choice (default: all but the "
                 "reference)")
      ->delimiter(',');
  app.add_option("--device", given->device, "device of the tensors: cpu, cuda, cuda:1, ...");
  app.add_option("--threads", given->threads, "number of threads (default: MYTORCH_NUM_THREADS)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--cache", given->cache, "warm, cold (flushed before each call) or both")
      ->check(CLI::IsMember({"warm", "cold", "both"}));
  app.add_option("--seconds", given->seconds, "measuring time per row")
      ->check(CLI::Range(0.001, 3600.0));
  app.add_option("--json", given->json,
                 "write the results to this file, in Google Benchmark's format");
  app.add_option("--compare", given->compare,
                 "print ratios to the results in this file, which may be Google Benchmark's");
  return [given] { return bench_command(*given); };
}

}  // namespace mytorch::tools
