// `mytorch bench`.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <set>

#include "bench/harness/baseline.h"
#include "bench/harness/cases.h"
#include "bench/harness/page.h"
#include "bench/harness/report.h"
#include "bench/harness/runner.h"
#include "bench/harness/subject.h"
#include "conformance/custom.h"
#include "conformance/page.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/choice/choice.h"
#include "mytorch/backends.h"
#include "mytorch/error.h"
#include "mytorch/threads.h"
#include "tools/case_options.h"
#include "tools/commands.h"
#include "tools/measure.h"

namespace mytorch::tools {
namespace {

struct BenchArguments {
  CaseOptions cases;
  std::vector<std::string> backends;
  std::vector<std::string> devices = {"cpu"};
  int threads = 0;
  std::string cache = "warm";
  double seconds = 0.4;
  std::string json;
  std::vector<std::string> compare;
  std::string baseline;
  std::string report;
  // Of the suites machine and comm.
  std::string out;
  int ranks = 0;
  double most = 0;
};

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kValue, "[bench] " + what);
}

void check_backends(const std::vector<std::string>& names, const std::vector<Device>& devices) {
  std::set<std::string> known = {"chosen"};
  std::string where;
  for (const Device device : devices) {
    where += (where.empty() ? "" : ", ") + device.str();
    for (const Backend* backend : backends()) {
      if (backend->device_slot == checked_device_slot(device)) known.insert(backend->name);
    }
  }
  for (const std::string& name : names) {
    if (known.contains(name)) continue;
    std::string list;
    for (const std::string& each : known) list += (list.empty() ? "" : ", ") + each;
    refuse("no backend '" + name + "' for " + where + "; the backends are " + list +
           " (see `mytorch info`)");
  }
}

// Measures the cases of one device, and prints the rows.
void measure_cases(const std::vector<conformance::OpRecord>& catalog,
                   const std::vector<bench::Case>& cases, const bench::Options& options,
                   bool skip_failed, bench::PageContents& found) {
  const bool cpu = options.device.is_cpu();
  const bench::Machine machine =
      cpu ? bench::measure_machine(options.threads) : bench::measure_device(options.device);
  found.devices.emplace_back(options.device.str(), machine);
  bench::Table table(std::cout);
  if (cpu) {
    table.machine(machine, options.threads);
  } else {
    table.device(machine, options.device);
  }
  for (bench::Case c : cases) {
    c.device = options.device;
    std::vector<bench::Row> of_case;
    try {
      of_case = bench::measure(catalog, c, options, std::cerr);
    } catch (const Error& error) {
      // A suite continues after a case that fails, such as one with an unsupported type.
      if (!skip_failed) throw;
      std::cerr << c.name << ": " << error.what() << "\n";
    }
    for (bench::Row& row : of_case) {
      table.row(row);
      found.rows.push_back(std::move(row));
    }
  }
}

// The suites machine and comm have no cases.
int machine_suite(const BenchArguments& given) {
  const CaseOptions& c = given.cases;
  if (given.devices.size() != 1) refuse("--suite " + c.suite + " measures one device");
  if (!c.op.empty() || !c.only.empty() || !c.shapes.empty() || !c.set.empty() || !c.form.empty() ||
      !c.dtypes.empty() || !given.backends.empty() || !given.json.empty() ||
      !given.compare.empty() || !given.baseline.empty() || !given.report.empty()) {
    refuse("--suite " + c.suite +
           " takes --device, --seconds, --out and, of comm, --ranks and --most alone");
  }
  if (given.threads > 0) set_num_threads(given.threads);
  run_machine_suite({.suite = c.suite,
                     .device = Device(given.devices[0]),
                     .seconds = given.seconds,
                     .ranks = given.ranks,
                     .most = given.most,
                     .out = given.out});
  return 0;
}

int bench_command(const BenchArguments& given) {
  load_default_backends();
  if (is_machine_suite(given.cases.suite)) return machine_suite(given);
  if (!given.out.empty() || given.ranks > 0 || given.most > 0) {
    refuse("--out, --ranks and --most belong to the suites machine and comm");
  }
  const std::vector<Device> devices(given.devices.begin(), given.devices.end());
  check_backends(given.backends, devices);
  const std::string share = conformance::share_folder();
  const auto catalog = conformance::all_records(share);
  auto cases = select_cases(catalog, share, given.cases, "bench");
  // Errors are found before the machine is measured, which takes seconds.
  bench::PageContents found;
  std::vector<bench::Other> others, earlier;
  for (const std::string& path : given.compare) {
    found.files.push_back({path, bench::read_results(path)});
    others.insert(others.end(), found.files.back().results.begin(),
                  found.files.back().results.end());
  }
  if (!given.baseline.empty()) {
    earlier = bench::read_results(given.baseline, "--baseline");
    found.baseline = given.baseline;
    found.files.push_back({given.baseline, earlier});
  }
  conformance::check_writable("bench", given.json);
  conformance::check_writable("bench", given.report);
  if (given.cases.suite.empty()) {
    for (const Device device : devices) {
      for (bench::Case& c : cases) {
        c.device = device;
        bench::make_subject(c);  // throws the errors of the call
      }
    }
  }

  found.load = bench::machine_load();
  bench::Options options;
  options.backends = given.backends;
  options.threads = given.threads > 0 ? given.threads : num_threads();
  options.warm = given.cache != "cold";
  options.cold = given.cache != "warm";
  options.seconds = given.seconds;
  for (const Device device : devices) {
    options.device = device;
    measure_cases(catalog, cases, options, !given.cases.suite.empty(), found);
  }
  if (found.rows.empty()) refuse("no case could be measured");
  int slower = 0;
  if (!given.baseline.empty()) {
    found.changes = bench::changes_of(found.rows, earlier);
    if (found.changes.empty()) refuse("--baseline: " + given.baseline + " has none of these rows");
    const auto again = [&](const bench::Row& row) {
      bench::Options one = options;
      one.backends.clear();
      if (row.backend != "-") one.backends = {row.backend};
      one.device = row.what.device;
      return bench::measure(catalog, row.what, one, std::cerr);
    };
    bench::confirm(found.rows, found.changes, again, std::cerr);
    slower = bench::print_changes(found.rows, found.changes, std::cout);
  }
  if (!given.json.empty()) {
    const bench::Machine& machine = found.devices.front().second;
    bench::write_json(bench::to_json(found.rows, machine, options.threads), given.json);
  }
  if (!given.compare.empty()) bench::print_comparison(found.rows, others, std::cout);
  if (!given.report.empty()) bench::write_report(found, given.report);
  return slower > 0 ? 1 : 0;
}

}  // namespace

Run add_bench(CLI::App& app) {
  auto given = std::make_shared<BenchArguments>();
  add_case_options(app, given->cases);
  app.add_option("--backend", given->backends,
                 "backends to compare; `chosen` is the dispatcher's choice (default: all but the "
                 "reference)")
      ->delimiter(',');
  app.add_option("--device", given->devices,
                 "devices of the tensors, one after the other: cpu, cuda, cuda:1, ...")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--threads", given->threads, "number of threads (default: MYTORCH_NUM_THREADS)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--cache", given->cache, "warm, cold (flushed before each call) or both")
      ->check(CLI::IsMember({"warm", "cold", "both"}));
  app.add_option("--seconds", given->seconds, "measuring time per row")
      ->check(CLI::Range(0.001, 3600.0));
  app.add_option("--json", given->json,
                 "write the results to this file, in Google Benchmark's format");
  app.add_option("--compare", given->compare,
                 "print ratios to the results in these files, which may be Google Benchmark's")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--baseline", given->baseline,
                 "a file that --json wrote earlier: print what changed beyond its spread, and exit "
                 "with 1 if a row became slower");
  app.add_option("--report", given->report,
                 "write a page for a browser to this file: rooflines, bars beside the other "
                 "results, and tables");
  app.add_option("--out", given->out,
                 "of the suites machine and comm: write points for `mytorch plan --calibrate` to "
                 "this file");
  app.add_option("--ranks", given->ranks,
                 "of the suite comm: so many threads, in place of the processes of mytorch launch")
      ->check(CLI::Range(2, 1024));
  app.add_option("--most", given->most,
                 "of the suite comm: the most bytes (default: 1 GiB, on the CPU 64 MiB)")
      ->check(CLI::Range(8.0, 1e12));
  return [given] { return bench_command(*given); };
}

}  // namespace mytorch::tools
